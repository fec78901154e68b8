package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// childFlag makes the program one contender of itself.
const childFlag = "-child"

// process runs a command, times it as a whole, and gives its output and its peak
// memory in bytes.
func process(ctx context.Context, env []string, name string, arguments ...string) (took time.Duration, stdout []byte, peak int64, err error) {
	command := exec.CommandContext(ctx, name, arguments...)
	command.Env = append(os.Environ(), env...)
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	began := time.Now()
	err = command.Run()
	took = time.Since(began)
	if err != nil {
		return took, nil, 0, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(arguments, " "), err, out.String(), said.String())
	}
	if usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage); ok {
		peak = usage.Maxrss << 10 // kilobytes on Linux
	}
	return took, out.Bytes(), peak, nil
}

// job is what a child does.
type job struct {
	// Kind is ours, checkout, sequential, floor or import.
	Kind       string
	Repository string
	Branch     string
	// Ref is the input commit of ours.
	Ref    string
	Prefix string
	// Root and Directory are the workspace root and the files' directory below it.
	Root, Directory string
	// Import is an object-store prefix in their place.
	Import      string
	Concurrency int
	// Presigned lets uploads go to the object store itself.
	Presigned bool
	// LargestPut is the store's limit of one PUT request; 0 is that of S3.
	LargestPut int64
	// Profile is the file for a CPU profile of ours; none when it is empty.
	Profile string
}

// report is what a child of ours says.
type report struct {
	Commit  string
	Objects int
	Bytes   int64
}

// self runs a job in a process of its own.
func (b *bench) self(ctx context.Context, j job) (time.Duration, report, int64, error) {
	if b.profiles != "" && j.Kind == "ours" {
		j.Profile = filepath.Join(b.profiles, fmt.Sprintf("%s-%d.pprof", j.Repository, time.Now().UnixNano()))
	}
	raw, err := json.Marshal(j)
	if err != nil {
		return 0, report{}, 0, err
	}
	binary, err := os.Executable()
	if err != nil {
		return 0, report{}, 0, err
	}
	took, out, peak, err := process(ctx, b.servers.Env(), binary, childFlag, string(raw))
	if err != nil {
		return 0, report{}, 0, err
	}
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, report{}, 0, fmt.Errorf("%s: %w", out, err)
	}
	return took, r, peak, nil
}

// lakectlEnv is how lakectl reaches the server, with no file of its own.
func (b *bench) lakectlEnv() []string {
	return []string{
		"HOME=" + b.dir,
		"LAKECTL_SERVER_ENDPOINT_URL=" + b.servers.LakeFSURL,
		"LAKECTL_CREDENTIALS_ACCESS_KEY_ID=" + b.servers.AccessKeyID,
		"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=" + b.servers.SecretAccessKey,
		"LAKECTL_LOCAL_SKIP_NON_REGULAR_FILES=true",
	}
}

// runRclone runs rclone against lakeFS's S3 gateway.
func (b *bench) runRclone(ctx context.Context, arguments ...string) (time.Duration, error) {
	env := []string{
		// Of no use for a server on this host, and rclone refuses it.
		"AWS_CA_BUNDLE=",
		"RCLONE_CONFIG=" + os.DevNull, "RCLONE_S3_PROVIDER=Other", "RCLONE_S3_FORCE_PATH_STYLE=true",
		"RCLONE_S3_ENDPOINT=" + b.servers.LakeFSURL, "RCLONE_S3_ACCESS_KEY_ID=" + b.servers.AccessKeyID,
		"RCLONE_S3_SECRET_ACCESS_KEY=" + b.servers.SecretAccessKey, "RCLONE_S3_NO_CHECK_BUCKET=true",
	}
	took, _, _, err := process(ctx, env, b.rclone, arguments...)
	return took, err
}
