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

	mavenCopyGoal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
)

// EnvConductorVersion names the version of Conductor to run, one of those in
// conductorVersions; unset it is the first of them. The tests read it too: where
// versions differ, what is right depends on it.
const EnvConductorVersion = "PERAGO_TEST_CONDUCTOR_VERSION"

// conductorVersions are the versions that the tests know. Only the one that is
// asked for is fetched.
var conductorVersions = []conductorRelease{
	conductorOf("3.15.0", "0d6e4d00604cd05f3577689294ebd13435f097850831f1b31f7434cd29d68e63"),
	// It takes the conditions of loops to the JavaScript engine that Java had before
	// 15, and has none of its own, as 3.15.0 does: these are the ones of that.
	conductorOf("3.13.8", "d1bb3803310d477a6cc6f7920abef71c55da880322ecc4d23f7bef72d526ac4f",
		mavenJar{"org.openjdk.nashorn:nashorn-core:15.4", "nashorn-core-15.4.jar", "6f816e84dfd63a81d4eaa7829c08337bbaff3ec683ff3bf6bbd90d017a00dc6f"},
		mavenJar{"org.ow2.asm:asm-commons:7.3.1", "asm-commons-7.3.1.jar", "87cd8bb3c6bf6bcbb33fca48060c5065f66ebf6a3d7de9bf18bff51bcf156ebc"},
		mavenJar{"org.ow2.asm:asm-util:7.3.1", "asm-util-7.3.1.jar", "182128592742ed4883ac82bf205f137b6bfbe1234c68e6feb13759e75a85b729"},
		mavenJar{"org.ow2.asm:asm-tree:7.3.1", "asm-tree-7.3.1.jar", "f91a4a8aa868c5c4665bb4fd134019a91f9f8b9216527fba295e3c8b5422b78b"},
		mavenJar{"org.ow2.asm:asm-analysis:7.3.1", "asm-analysis-7.3.1.jar", "46b8a8efd4b94facb5ab4b35afe30ee0546ae7a43d2c64e6def56c2f168fefa5"}),
}

// conductorRelease is a version of Conductor as Maven Central has it.
type conductorRelease struct {
	version string
	jar     mavenJar
	// libraries are what its class path needs beside what is in the jar.
	libraries []mavenJar
}

func conductorOf(version, sha256 string, libraries ...mavenJar) conductorRelease {
	return conductorRelease{version: version, libraries: libraries, jar: mavenJar{
		artifact: "com.netflix.conductor:conductor-server:" + version + ":jar:boot",
		file:     "conductor-server-" + version + "-boot.jar",
		sha256:   sha256,
	}}
}

// librariesDir is where they are, beside the jar.
const librariesDir = "lib"

// files are all of them, below the folder of the release.
func (c conductorRelease) files() []string {
	files := []string{c.jar.file}
	for _, library := range c.libraries {
		files = append(files, filepath.Join(librariesDir, library.file))
	}
	return files
}

// fetch puts them into dir.
func (c conductorRelease) fetch(ctx context.Context, dir string) error {
	if err := c.jar.fetch(ctx, dir); err != nil || len(c.libraries) == 0 {
		return err
	}
	beside := filepath.Join(dir, librariesDir)
	if err := os.Mkdir(beside, 0o755); err != nil {
		return err
	}
	for _, library := range c.libraries {
		if err := library.fetch(ctx, beside); err != nil {
			return err
		}
	}
	return nil
}

// chooseConductor is the version that the environment names.
func chooseConductor(getenv func(string) string) (conductorRelease, error) {
	asked := getenv(EnvConductorVersion)
	var known []string
	for _, release := range conductorVersions {
		if asked == "" || asked == release.version {
			return release, nil
		}
		known = append(known, release.version)
	}
	return conductorRelease{}, fmt.Errorf("%s=%s: the known versions are %s", EnvConductorVersion, asked, strings.Join(known, " and "))
}

// Binaries are the cached files that the servers run from.
type Binaries struct {
	LakeFS       string // the server
	Lakectl      string // its command line, for looking at a server by hand
	S3           string // an object store for lakeFS, versitygw
	ConductorJar string
	// ConductorLibraries is the folder of what the jar needs beside itself; empty
	// when that is nothing.
	ConductorLibraries string
	// ConductorVersion is the jar's, for example 3.15.0.
	ConductorVersion string
}

// conductorProgram is how Java is told to run it. The jar's own main class looks
// nowhere beside the jar.
func (b Binaries) conductorProgram() []string {
	if b.ConductorLibraries == "" {
		return []string{"-jar", b.ConductorJar}
	}
	return []string{"-Dloader.path=" + b.ConductorLibraries, "-cp", b.ConductorJar, "org.springframework.boot.loader.PropertiesLauncher"}
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

	conductor := filepath.Join(cache, "conductor-"+release.version)
	err = ensure(ctx, conductor, release.files(), func(dir string) error {
		fmt.Fprintf(progress, "fetching Conductor %s with Maven (104 MB, once)\n", release.version)
		return release.fetch(ctx, dir)
	})
	if err != nil {
		return Binaries{}, fmt.Errorf("conductor %s: %w", release.version, err)
	}
	libraries := ""
	if len(release.libraries) > 0 {
		libraries = filepath.Join(conductor, librariesDir)
	}
	return Binaries{
		LakeFS:             filepath.Join(lakefs, "lakefs"),
		Lakectl:            filepath.Join(lakefs, "lakectl"),
		S3:                 filepath.Join(s3, "versitygw"),
		ConductorJar:       filepath.Join(conductor, release.jar.file),
		ConductorLibraries: libraries,
		ConductorVersion:   release.version,
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

// mavenJar is a file of Maven Central's.
type mavenJar struct{ artifact, file, sha256 string }

// fetch puts the jar into dir.
func (j mavenJar) fetch(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", mavenCopyGoal,
		"-Dartifact="+j.artifact, "-Dtransitive=false", "-DoutputDirectory="+dir)
	cmd.Dir = dir // no pom.xml here: the goal needs none
	if err := runQuietly(cmd); err != nil {
		return err
	}
	jar, err := os.Open(filepath.Join(dir, j.file))
	if err != nil {
		return err
	}
	defer jar.Close()
	h := sha256.New()
	if _, err := io.Copy(h, jar); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != j.sha256 {
		return fmt.Errorf("%s has SHA-256 %s, want %s", j.file, got, j.sha256)
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
