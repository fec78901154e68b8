package lakefstest

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"perago/e2e/stack"
	"perago/pkg/credential"
	"perago/pkg/lakefs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The contract on both subjects: what the memory server says is worth what the
// real one says.
func TestContract(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		server := NewServer()
		Contract(t, func(*testing.T) Subject {
			return Subject{Config: server.Config(), Transport: server.Transport(), ImportDirectory: t.TempDir()}
		})
	})
	if stack.Short(t) {
		return
	}
	t.Run("real", func(t *testing.T) {
		servers := stack.Require(t)
		transport := &http.Transport{MaxIdleConnsPerHost: 64}
		t.Cleanup(transport.CloseIdleConnections)
		Contract(t, func(*testing.T) Subject {
			return Subject{Config: lakefs.Config{
				Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID),
				SecretAccessKey: credential.New(servers.SecretAccessKey),
			}, Transport: transport, ImportDirectory: servers.ImportDir}
		})
	})
}

// The contract of pre-signed uploads, on both subjects that have a store of their
// own.
func TestPresignedContract(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		server := NewServer()
		server.PreSign = true
		PresignedContract(t, func(*testing.T) Subject {
			return Subject{Config: server.Config(), Transport: server.Transport(), Expired: server.Expired}
		})
	})
	if stack.Short(t) {
		return
	}
	t.Run("real", func(t *testing.T) {
		servers := stack.RequireOnS3(t)
		transport := &http.Transport{MaxIdleConnsPerHost: 64}
		t.Cleanup(transport.CloseIdleConnections)
		PresignedContract(t, func(*testing.T) Subject {
			return Subject{Config: lakefs.Config{
				Endpoint: servers.LakeFSURL, AccessKeyID: credential.New(servers.AccessKeyID),
				SecretAccessKey: credential.New(servers.SecretAccessKey),
			}, Transport: transport, Store: "s3://" + servers.Bucket + "/", Expired: servers.Expired}
		})
	})
}
