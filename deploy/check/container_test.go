package check

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const containerFile = deploy + "/container/Containerfile"

// instruction is one of the container file: its words and its flags.
type instruction struct {
	name  string
	words []string
	flags []string
}

// instructions are those of the build stage and of the image.
func instructions(t *testing.T) (build, image []instruction) {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(read(t, containerFile)))
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range parsed.Warnings {
		t.Errorf("Containerfile: %s", warning.Short)
	}
	stages := 0
	for _, node := range parsed.AST.Children {
		one := instruction{name: strings.ToUpper(node.Value), flags: node.Flags}
		for word := node.Next; word != nil; word = word.Next {
			one.words = append(one.words, word.Value)
		}
		if one.name == "FROM" {
			stages++
		}
		switch stages {
		case 1:
			build = append(build, one)
		case 2:
			image = append(image, one)
		}
	}
	if stages != 2 {
		t.Fatalf("the Containerfile has %d stages, want 2: build and image", stages)
	}
	return build, image
}

func find(t *testing.T, all []instruction, name string) []instruction {
	t.Helper()
	var found []instruction
	for _, one := range all {
		if one.name == name {
			found = append(found, one)
		}
	}
	if len(found) == 0 {
		t.Fatalf("the Containerfile has no %s", name)
	}
	return found
}

// The image holds the binaries and the certificates, and runs as nobody.
func TestContainerFile(t *testing.T) {
	t.Parallel()
	_, image := instructions(t)
	if from := find(t, image, "FROM")[0].words; from[0] != "scratch" {
		t.Errorf("the image is made from %q, want scratch", from)
	}
	if user := find(t, image, "USER")[0].words[0]; user != "65532:65532" {
		t.Errorf("the image runs as %q; a number is what runAsNonRoot can be checked against", user)
	}
	var copied []string
	for _, one := range find(t, image, "COPY") {
		if !slices.Equal(one.flags, []string{"--from=build"}) {
			t.Errorf("COPY %v has the flags %v", one.words, one.flags)
		}
		copied = append(copied, one.words...)
	}
	if want := []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-certificates.crt", "/out/", "/"}; !slices.Equal(copied, want) {
		t.Errorf("the image gets %q, want %q", copied, want)
	}
	for _, one := range image {
		if one.name == "RUN" {
			t.Errorf("the image runs %q; scratch has nothing to run it with", one.words)
		}
	}
}

// binaries are what the build stage of the container file makes, made by its own
// commands in the project's directory.
func binaries(t *testing.T) string {
	t.Helper()
	build, _ := instructions(t)
	out := t.TempDir()
	built := false
	for _, one := range find(t, build, "RUN") {
		command := strings.Join(one.words, " ")
		if command == "go mod download" {
			continue
		}
		built = strings.Contains(command, "-o /out/ ./cmd/...")
		run := exec.Command("sh", "-ec", strings.ReplaceAll(command, "/out/", out+"/"))
		run.Dir = root
		if output, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, output)
		}
	}
	if !built {
		t.Fatal("the Containerfile does not build ./cmd/... into /out/")
	}
	return out
}

// empty is the file system of the image: the binaries, owned by root, in which
// nobody else may write.
func empty(t *testing.T) string {
	t.Helper()
	dir := binaries(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if want := []string{"cleanup-worker", "perago", "publish-worker", "stage-worker"}; !slices.Equal(names, want) {
		t.Fatalf("the image holds %v, want %v", names, want)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	return dir
}

// from is a command as the container runs it: with the image as its root, as the
// image's user. Only root may do that; anybody else runs the same binary as is.
func from(ctx context.Context, image, name string, environment ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(image, name))
	command.Dir = image
	if os.Geteuid() == 0 {
		command = exec.CommandContext(ctx, "/"+name)
		command.Dir = "/"
		command.SysProcAttr = &syscall.SysProcAttr{Chroot: image, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	command.Env = append([]string{}, environment...) // nil would be the test's own
	return command
}

func TestBinaries(t *testing.T) {
	t.Parallel()
	image := empty(t)
	// The way into it must be open to the image's user.
	for dir := image; dir != os.TempDir() && len(dir) > 1; dir = path.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			if err := os.Chmod(dir, info.Mode().Perm()|0o011); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"stage-worker", "publish-worker", "cleanup-worker", "perago"} {
		t.Run("static/"+name, func(t *testing.T) {
			t.Parallel()
			static(t, filepath.Join(image, name))
		})
	}
	for _, name := range []string{"stage-worker", "publish-worker", "cleanup-worker"} {
		t.Run("nothing set/"+name, func(t *testing.T) {
			t.Parallel()
			nothingSet(t, image, name)
		})
		t.Run("read-only root/"+name, func(t *testing.T) {
			t.Parallel()
			readOnly(t, image, name)
		})
	}
}

// static holds that a binary needs nothing else: no loader and no library.
func static(t *testing.T, name string) {
	file, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP || program.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a %s", program.Type)
		}
	}
	if libraries, err := file.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("it needs %v", libraries)
	}
}

// nothingSet starts a worker from an empty environment: one message says every
// variable that it must have.
func nothingSet(t *testing.T, image, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := from(ctx, image, name)
	out, err := command.CombinedOutput()
	if command.ProcessState.ExitCode() != 2 {
		t.Fatalf("exit code %d, want 2: %v\n%s", command.ProcessState.ExitCode(), err, out)
	}
	for variable, v := range variables(t) {
		if v.required && v.of(name) && !bytes.Contains(out, []byte(variable)) {
			t.Errorf("it does not name %s:\n%s", variable, out)
		}
	}
	if !bytes.Contains(out, []byte(name+" -h lists the variables")) {
		t.Errorf("it does not say where to look:\n%s", out)
	}
}

// readOnly starts a worker whose servers are not there, where it can write
// nothing: it lives, is not ready, and ends in order.
func readOnly(t *testing.T, image, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	address := free(t)
	command := from(ctx, image, name,
		"CONDUCTOR_SERVER_URL=http://127.0.0.1:1", "LAKECTL_SERVER_ENDPOINT_URL=http://127.0.0.1:1",
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=key", "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=secret",
		"PERAGO_ALLOWED_REPOSITORIES=r", "PERAGO_WORKSPACE_ROOT=/", "PERAGO_HTTP_ADDR="+address)
	var said bytes.Buffer
	command.Stderr = &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for status(address, "/livez") != http.StatusOK {
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v\n%s", err, said.String())
		case <-ctx.Done():
			t.Fatal("it does not live")
		case <-tick.C:
		}
	}
	if got := status(address, "/readyz"); got != http.StatusServiceUnavailable {
		t.Errorf("/readyz is %d without a server, want 503", got)
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v\n%s", err, said.String())
	}
}

func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func status(address, path string) int {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(fmt.Sprintf("http://%s%s", address, path))
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}
