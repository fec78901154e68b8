package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"perago/pkg/conductor"
	"perago/pkg/credential"
	"perago/pkg/lakefs"
	"perago/pkg/txn"
)

// asked are calls of both clients with the transports that the workers have, which
// are none of the test's.
type asked struct {
	name   string
	ofLake bool
	call   func(context.Context, *conductor.Client, *lakefs.Client) error
}

var someCommit = txn.CommitID(strings.Repeat("a", 64))

var wireCalls = []asked{
	{"poll", false, func(ctx context.Context, c *conductor.Client, _ *lakefs.Client) error {
		_, err := c.Poll(ctx, txn.PollRequest{Type: txn.TypeStage, Worker: "w", Count: 1})
		return err
	}},
	{"workflow", false, func(ctx context.Context, c *conductor.Client, _ *lakefs.Client) error {
		_, err := c.Workflow(ctx, "w")
		return err
	}},
	{"workflow status", false, func(ctx context.Context, c *conductor.Client, _ *lakefs.Client) error {
		_, err := c.WorkflowStatus(ctx, "w")
		return err
	}},
	{"update", false, func(ctx context.Context, c *conductor.Client, _ *lakefs.Client) error {
		return c.Update(ctx, txn.TaskResult{Task: "t", Workflow: "w", Status: txn.TaskCompleted})
	}},
	{"head", true, func(ctx context.Context, _ *conductor.Client, l *lakefs.Client) error {
		_, err := l.Head(ctx, "repo", "main")
		return err
	}},
	{"objects", true, func(ctx context.Context, _ *conductor.Client, l *lakefs.Client) error {
		for _, err := range l.Objects(ctx, "repo", someCommit, "") {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"merge", true, func(ctx context.Context, _ *conductor.Client, l *lakefs.Client) error {
		_, err := l.Merge(ctx, txn.Merge{Repository: "repo", Source: someCommit, Destination: "main"})
		return err
	}},
	{"read object", true, func(ctx context.Context, _ *conductor.Client, l *lakefs.Client) error {
		object, err := l.ReadObject(ctx, "repo", someCommit, "p")
		if err != nil {
			return err
		}
		defer object.Close()
		// As publish reads the action file and checkout an object: as much as there
		// should be, and one byte.
		_, err = io.Copy(io.Discard, io.LimitReader(object, 1000))
		if err == nil {
			err = io.ErrUnexpectedEOF // more than an object of this size holds
		}
		return err
	}},
}

// wireAnswers are what only a connection can say, as long as the worker takes it.
var wireAnswers = map[string]func(conn net.Conn, elsewhere string){
	"headers without end": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(conn, "X-Header-%d: %s\r\n", i, strings.Repeat("x", 8000)); err != nil {
				return
			}
		}
	},
	"one header without end": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Header: ")
		for {
			if _, err := io.WriteString(conn, strings.Repeat("x", 8000)); err != nil {
				return
			}
		}
	},
	"a status line without end": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 ")
		for {
			if _, err := io.WriteString(conn, strings.Repeat("x", 8000)); err != nil {
				return
			}
		}
	},
	"1xx without end": func(conn net.Conn, _ string) {
		for {
			if _, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n"); err != nil {
				return
			}
		}
	},
	"no HTTP": func(conn net.Conn, _ string) { _, _ = io.WriteString(conn, "220 mail.test ESMTP\r\n") },
	"a length that is no number": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}")
	},
	"a length below zero": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}")
	},
	"two lengths": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\n{}")
	},
	"a length that does not come": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n{}")
	},
	"a chunk that is too large": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}")
	},
	bomb: func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
		_, _ = conn.Write(packed())
	},
	"no gzip": func(conn net.Conn, _ string) {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")
	},
	"a redirect": func(conn net.Conn, elsewhere string) {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 307 Temporary Redirect\r\nLocation: %s/\r\nContent-Length: 0\r\n\r\n", elsewhere)
	},
	"another place to answer from": func(conn net.Conn, elsewhere string) {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nAlt-Svc: h2=%q\r\nRefresh: 0; url=%s\r\nContent-Location: %s\r\nSet-Cookie: a=b; Domain=test\r\nContent-Length: 2\r\n\r\n{}", strings.TrimPrefix(elsewhere, "http://"), elsewhere, elsewhere)
	},
}

const bomb = "a bomb"

// packed is a small answer that unpacks to 256 MiB.
var packed = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, `{"id":"`)
	piece := bytes.Repeat([]byte("a"), 1<<20)
	for range 256 {
		_, _ = w.Write(piece)
	}
	_ = w.Close()
	return b.Bytes()
})

// mostOnTheWire is what a worker may take of one answer, in bytes, headers and all.
const mostOnTheWire = 80 << 20

// What a connection says beside bodies, to the clients with the transports that the
// workers have: each call ends with an error, takes a bounded amount of memory, and
// goes nowhere else.
func TestTheWire(t *testing.T) {
	var strays atomic.Int32
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := other.Accept()
			if err != nil {
				return
			}
			strays.Add(1)
			_ = conn.Close()
		}
	})
	defer serving.Wait()
	defer other.Close()
	elsewhere := "http://" + other.Addr().String()

	cases, began := 0, time.Now()
	for name, answer := range wireAnswers {
		for _, a := range wireCalls {
			cases++
			taken := &atomic.Int64{}
			address, stop := onTheWire(t, taken, func(conn net.Conn) { answer(conn, elsewhere) })
			server, err := conductor.New(conductor.Config{ServerURL: "http://" + address}, nil)
			if err != nil {
				t.Fatal(err)
			}
			lake, err := lakefs.New(lakefs.Config{Endpoint: "http://" + address, AccessKeyID: credential.New(theKey), SecretAccessKey: credential.New(theSecret)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			// Reads are asked for again for ten seconds: not here.
			within := 200 * time.Millisecond
			if name == bomb && !a.ofLake {
				within = 10 * time.Second // it is unpacked as far as the bound
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = a.call(ctx, server, lake)
			runtime.ReadMemStats(&after)
			cancel()
			server.CloseIdleConnections()
			stop()
			if err == nil && a.name != "update" {
				t.Errorf("%s: %s is a success", name, a.name)
			}
			if n := taken.Load(); n > 8*mostOnTheWire {
				t.Errorf("%s: %s took %d bytes", name, a.name, n)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<30 {
				t.Errorf("%s: %s made %d bytes", name, a.name, used)
			}
		}
	}
	if n := strays.Load(); n > 0 {
		t.Errorf("%d connections to another place", n)
	}
	t.Logf("hostile: %d cases on the wire, %s", cases, time.Since(began).Round(time.Millisecond))
}

// onTheWire answers each request on a connection with what answer writes.
func onTheWire(t *testing.T, taken *atomic.Int64, answer func(net.Conn)) (address string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			serving.Go(func() {
				defer conn.Close()
				request := make([]byte, 64<<10)
				if _, err := conn.Read(request); err == nil {
					answer(countedConn{conn, taken})
				}
			})
		}
	})
	return listener.Addr().String(), func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		serving.Wait()
	}
}

type countedConn struct {
	net.Conn
	taken *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.taken.Add(int64(n))
	return n, err
}
