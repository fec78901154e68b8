package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Condition is one thing that must hold for a process to be ready.
type Condition struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Sentence says what is wrong and what to do; empty when the condition holds.
	Sentence string `json:"sentence,omitempty"`
}

// readyBody is what /readyz answers.
type readyBody struct {
	Ready      bool        `json:"ready"`
	Conditions []Condition `json:"conditions"`
}

// NewHealthHandler serves /livez (200 while the process answers), /readyz (200
// when every condition holds, else 503; a JSON body names each with its
// sentence) and /metrics (the registry, in Prometheus' format).
func NewHealthHandler(registry *prometheus.Registry, conditions func() []Condition) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		body := readyBody{Ready: true, Conditions: conditions()}
		for _, condition := range body.Conditions {
			body.Ready = body.Ready && condition.OK
		}
		w.Header().Set("Content-Type", "application/json")
		if !body.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(body) // the caller hung up: nobody is left to tell
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	return mux
}

// HealthServer serves a handler on an address until it is closed.
type HealthServer struct {
	server   *http.Server
	listener net.Listener
	done     chan error
}

// ListenHealth binds the address, host:port with port 0 for any free one, and
// serves the handler. The error is the bind's.
func ListenHealth(address string, handler http.Handler) (*HealthServer, error) {
	// Probes are small; a client that dribbles must not hold a connection.
	return listen(address, handler, 30*time.Second)
}

func listen(address string, handler http.Handler, answer time.Duration) (*HealthServer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &HealthServer{
		server: &http.Server{
			Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
			WriteTimeout: answer, IdleTimeout: time.Minute,
		},
		listener: listener,
		done:     make(chan error, 1),
	}
	go func() { s.done <- s.server.Serve(listener) }()
	return s, nil
}

// Address is the bound host:port.
func (s *HealthServer) Address() string { return s.listener.Addr().String() }

// Abort ends the server and its requests at once.
func (s *HealthServer) Abort() {
	_ = s.server.Close() // the listener is gone either way
	<-s.done
}

// Close stops listening, gives open requests until ctx ends and returns when the
// server is gone.
func (s *HealthServer) Close(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
