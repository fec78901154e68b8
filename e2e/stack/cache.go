package stack

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	lakeFSVersion = "1.84.0"
	lakeFSModule  = "github.com/treeverse/lakefs"

	s3Version = "1.8.0"
	s3Module  = "github.com/versity/versitygw"

	mavenGetGoal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:get"
)

// EnvConductorVersion names the version of Conductor to run, one of those in
// conductorVersions; unset it is the first of them, the newest. The tests read it too: where
// versions differ, what is right depends on it.
const EnvConductorVersion = "PERAGO_TEST_CONDUCTOR_VERSION"

// conductorVersions are the versions that the tests know. Only the one that is asked
// for is fetched.
var conductorVersions = []conductorRelease{
	{
		version: "3.32.3", group: "org.conductoross", megabytes: 458, java: 21,
		sha256: "6b1615a5beb82bbbfa05219d0f1b84440aa8c0bef1371662803ef5588d7d507b",
	},
	{
		version: "3.21.14", group: "org.conductoross", megabytes: 403, java: 17,
		sha256: "f0cfdf1cfd2eae1a925109a9d64ec328019af1dd57a0a209c41da0f320a7f31b",
	},
	{
		version: "3.15.0", group: "com.netflix.conductor", megabytes: 104, java: 17, memoryOnly: true,
		sha256: "0d6e4d00604cd05f3577689294ebd13435f097850831f1b31f7434cd29d68e63",
	},
}

// conductorRelease is a version of Conductor as Maven Central has it.
type conductorRelease struct {
	version   string
	group     string // of the artifact conductor-server
	sha256    string // of the jar
	megabytes int    // of the jar, to say before it is fetched
	java      int    // the oldest major version of Java that runs it
	// file is where it is, when it is not to be fetched.
	file string
	// memoryOnly says that it has neither SQLite nor PostgreSQL in it.
	memoryOnly bool
}

// jar is the file's name, in its release's folder of the cache.
func (c conductorRelease) jar() string { return "conductor-server-" + c.version + "-boot.jar" }

// chooseConductor is the jar or the version that the environment names.
func chooseConductor(getenv func(string) string) (conductorRelease, error) {
	if jar := getenv(EnvConductorJar); jar != "" {
		return releaseOfJar(jar)
	}
	asked := getenv(EnvConductorVersion)
	var known []string
	for _, release := range conductorVersions {
		if asked == "" || asked == release.version {
			return release, nil
		}
		known = append(known, release.version)
	}
	return conductorRelease{}, fmt.Errorf("%s=%s: the known versions are %s", EnvConductorVersion, asked, strings.Join(known, ", "))
}

// Binaries are the files that the servers run from.
type Binaries struct {
	LakeFS       string // the server
	Lakectl      string // its command line, for looking at a server by hand
	S3           string // an object store for lakeFS, versitygw
	ConductorJar string
	// ConductorVersion is the jar's, for example 3.32.3.
	ConductorVersion string
	// Java runs the jar.
	Java Java

	conductor conductorRelease
}

// Prefetch makes sure that the servers are in the cache and returns where.
// The first time it takes minutes and writes a line to progress for each thing
// it builds or fetches; afterwards it only looks. It is safe to call from
// several processes at once, and to interrupt.
func Prefetch(ctx context.Context, progress io.Writer) (Binaries, error) {
	release, err := chooseConductor(os.Getenv)
	if err != nil {
		return Binaries{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return Binaries{}, err
	}
	root, err := moduleRoot()
	if err != nil {
		return Binaries{}, err
	}
	modules := filepath.Join(root, "e2e", "stack", "servers")
	lakefs, err := built(ctx, cache, filepath.Join(modules, "lakefs"), "lakefs-"+lakeFSVersion, []string{"lakefs", "lakectl"}, func(module, dir string) error {
		fmt.Fprintf(progress, "building lakeFS %s from its Go module (some minutes, once)\n", lakeFSVersion)
		return build(ctx, module, dir, "-ldflags", "-X "+lakeFSModule+"/pkg/version.Version="+lakeFSVersion,
			lakeFSModule+"/cmd/lakefs", lakeFSModule+"/cmd/lakectl")
	})
	if err != nil {
		return Binaries{}, fmt.Errorf("lakeFS %s: %w", lakeFSVersion, err)
	}
	s3, err := built(ctx, cache, filepath.Join(modules, "s3"), "versitygw-"+s3Version, []string{"versitygw"}, func(module, dir string) error {
		fmt.Fprintf(progress, "building versitygw %s, an object store, from its Go module (a minute or two, once)\n", s3Version)
		return build(ctx, module, dir, s3Module+"/cmd/versitygw")
	})
	if err != nil {
		return Binaries{}, fmt.Errorf("versitygw %s: %w", s3Version, err)
	}

	java, err := ensureJava(ctx, cache, release.java, progress)
	if err != nil {
		return Binaries{}, fmt.Errorf("a Java for Conductor %s: %w", release.version, err)
	}
	if release.file == "" {
		conductor := filepath.Join(cache, "conductor-"+release.version)
		err = ensure(ctx, conductor, []string{release.jar()}, func(dir string) error {
			return release.fetch(ctx, dir, progress)
		})
		if err != nil {
			return Binaries{}, fmt.Errorf("conductor %s: %w", release.version, err)
		}
		release.file = filepath.Join(conductor, release.jar())
	}
	return Binaries{
		LakeFS:           filepath.Join(lakefs, "lakefs"),
		Lakectl:          filepath.Join(lakefs, "lakectl"),
		S3:               filepath.Join(s3, "versitygw"),
		ConductorJar:     release.file,
		ConductorVersion: release.version,
		Java:             java,
		conductor:        release,
	}, nil
}

// built is the directory of the cache that holds what a module of servers/ builds:
// the files, made by fill.
func built(ctx context.Context, cache, module, name string, files []string, fill func(module, dir string) error) (string, error) {
	key, err := moduleKey(module, name)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, key)
	return dir, ensure(ctx, dir, files, func(tmp string) error { return fill(module, tmp) })
}

// moduleKey names the cached build of a module. The module's files are part of it,
// so that a changed dependency is a new build and never an old binary under a new
// name.
func moduleKey(module, name string) (string, error) {
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", name, len(b))
		h.Write(b)
	}
	sum := hex.EncodeToString(h.Sum(nil))[:16]
	return fmt.Sprintf("%s-%s-%s-%s", name, runtime.GOOS, runtime.GOARCH, sum), nil
}

// ensure makes the directory dir with the named files in it, unless they are
// there. fill writes into a temporary directory that is renamed when it is
// whole, under a lock, so neither an interrupted nor a concurrent run leaves a
// half file or does the work twice.
func ensure(ctx context.Context, dir string, files []string, fill func(tmp string) error) error {
	if present(dir, files) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if present(dir, files) {
		return nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return err
	}
	if !present(tmp, files) {
		return fmt.Errorf("%s was not made", strings.Join(files, " and "))
	}
	// Something incomplete may stand there, for example after a cleaning of
	// the cache that was interrupted.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

func present(dir string, files []string) bool {
	for _, name := range files {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			return false
		}
	}
	return true
}

// lock takes an advisory lock that ends with this process at the latest.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("another process is filling the cache (lock %s): %w", path, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// build puts the commands of a module's dependencies into dir. arguments are flags
// and packages.
func build(ctx context.Context, module, dir string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + string(filepath.Separator)}, arguments...)...)
	cmd.Dir = module
	// A go.work of the caller's would pull this module into the product's graph.
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return runQuietly(cmd)
}

// fetch puts the jar into dir, with Maven. Maven keeps what it fetches in a
// repository of its own; that one is inside dir and goes afterwards, so that the jar
// is on the disk once.
func (c conductorRelease) fetch(ctx context.Context, dir string, progress io.Writer) error {
	repository := filepath.Join(dir, "repository")
	if err := os.Mkdir(repository, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(repository)
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", mavenGetGoal, "-Dmaven.repo.local="+repository, "-Dtransitive=false",
		"-Dartifact="+c.group+":conductor-server:"+c.version+":jar:boot")
	cmd.Dir = dir // no pom.xml here: the goal needs none
	stop := showProgress(progress, "Conductor "+c.version, c.megabytes, repository)
	err := runQuietly(cmd)
	stop()
	if err != nil {
		return err
	}
	fetched := filepath.Join(repository, filepath.FromSlash(strings.ReplaceAll(c.group, ".", "/")), "conductor-server", c.version, c.jar())
	if err := checkSHA256(fetched, c.sha256); err != nil {
		return err
	}
	return os.Rename(fetched, filepath.Join(dir, c.jar()))
}

// progressInterval is the time between two lines about one download.
const progressInterval = 5 * time.Second

// showProgress says what is fetched and how large it is, and then every few seconds
// how much of it has come into dir, until stop is called.
func showProgress(progress io.Writer, what string, megabytes int, dir string) (stop func()) {
	fmt.Fprintf(progress, "fetching %s (%d MB, once)\n", what, megabytes)
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				fmt.Fprintf(progress, "fetching %s: %d of %d MB\n", what, min(sizeOf(dir)/1e6, int64(megabytes)), megabytes)
			}
		}
	}()
	return func() { close(ended); <-done }
}

// sizeOf is the size of the files below dir that it can see.
func sizeOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil // Maven renames and removes while this looks
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		return nil
	})
	return size
}

func checkSHA256(path, want string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has SHA-256 %s, want %s", filepath.Base(path), got, want)
	}
	return nil
}

// runQuietly shows what a tool printed only when it fails.
func runQuietly(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s is not installed; run `make deps`", filepath.Base(cmd.Path))
	}
	if err != nil {
		return fmt.Errorf("%s: %w; its output ends:\n%s", filepath.Base(cmd.Path), err, tail(out.Bytes()))
	}
	return nil
}

func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place to keep the servers: %w", err)
	}
	return filepath.Join(dir, "perago", "servers"), nil
}

// moduleRoot finds the project's directory from the working directory: tests
// run in their package's, the commands anywhere in the project.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if first, _, _ := strings.Cut(string(b), "\n"); strings.TrimSpace(first) == "module perago" {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the project: no go.mod of module perago above it", start)
		}
	}
}
