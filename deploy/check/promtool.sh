#!/usr/bin/env bash
# Says where promtool is. With `install` it first puts the one of Debian's package
# prometheus into the user's cache if there is none, without installing the
# package: that would start a Prometheus on this machine.
set -euo pipefail
cached=${XDG_CACHE_HOME:-$HOME/.cache}/perago/promtool

if found=$(command -v promtool) || { [ -x "$cached" ] && found=$cached; }; then
  echo "$found"
  exit
fi
if [ "${1:-}" != install ] || ! command -v apt-get >/dev/null; then
  echo "promtool is missing: install it (Debian, Ubuntu: apt-get install prometheus)" >&2
  exit 1
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
[ "$(id -u)" -ne 0 ] || apt-get update -qq </dev/null >&2
apt-get download -qq -o APT::Sandbox::User= prometheus </dev/null >&2
dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool
mkdir -p "$(dirname "$cached")"
mv usr/bin/promtool "$cached.$$"
mv "$cached.$$" "$cached"
echo "$cached"
