package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"

	"perago/e2e/stack"
	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

// lake is the server that is measured on.
type lake struct{ *lakefs.Client }

func newLake(servers stack.Servers) (lake, error) { return newLakeOf(servers, 0) }

// newLakeOf is newLake for a store whose limit of one PUT request is lowered; 0 is the
// limit of S3.
func newLakeOf(servers stack.Servers, largestPut int64) (lake, error) {
	client, err := lakefs.New(lakefs.Config{
		Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID), SecretAccessKey: credential.New(servers.SecretAccessKey),
		LargestPut: largestPut,
	}, nil)
	return lake{client}, err
}

func unique(name string) string {
	var raw [6]byte
	_, _ = rand.Read(raw[:]) // never fails
	return name + "-" + hex.EncodeToString(raw[:])
}

// repository makes one and gives the commit that its main points at.
func (b *bench) repository(ctx context.Context, name string) (txn.Repository, txn.CommitID, error) {
	repository := txn.Repository(unique("bench-" + name))
	if err := b.lake.CreateRepository(ctx, repository, b.store+string(repository), "main"); err != nil {
		return "", "", err
	}
	head, err := b.lake.Head(ctx, repository, "main")
	return repository, head, err
}

// branch makes one of main's first commit for a peer to upload to.
func (b *bench) branch(ctx context.Context, repository txn.Repository, at txn.CommitID) (txn.Branch, error) {
	branch := txn.Branch(unique("peer"))
	return branch, b.lake.CreateBranch(ctx, repository, branch, at)
}

// files writes count files of size bytes, a few hundred in each directory, and
// gives the name of their directory below the workflow's.
func (b *bench) files(name string, count, size int) (string, error) {
	source := mathrand.NewChaCha8([32]byte{1})
	for i := range count {
		path := filepath.Join(b.dir, string(workflow), name, fmt.Sprintf("d%03d", i/250), fmt.Sprintf("f%06d", i))
		if i%250 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return "", err
			}
		}
		if err := writeRandom(source, path, size); err != nil {
			return "", err
		}
	}
	return name, nil
}

func writeRandom(source *mathrand.ChaCha8, path string, size int) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	piece := make([]byte, min(size, 1<<20))
	for size > 0 {
		n := min(size, len(piece))
		_, _ = source.Read(piece[:n]) // never fails
		if _, err := file.Write(piece[:n]); err != nil {
			return err
		}
		size -= n
	}
	return file.Close()
}
