package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"

	"perago/e2e/stack"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs/lakefstest"
)

// servers are what the fleet works with.
type servers struct {
	stack.Servers
	// restarted are those that can be; none of them is in memory.
	restarted []*stack.Server
	stops     []func() error
}

func startServers(ctx context.Context, o options, logs string, log io.Writer) (_ *servers, err error) {
	s := &servers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if o.memory == "" {
		started, err := stack.Start(ctx, stack.Options{Dir: filepath.Join(o.dir, "servers"), LogDir: logs, Progress: log, Store: stack.Store(o.store)})
		if err != nil {
			return nil, err
		}
		s.Servers, s.stops = started.Servers, append(s.stops, started.Stop)
		s.restarted = []*stack.Server{started.Conductor, started.LakeFS}
		if started.Database != nil {
			s.restarted = append(s.restarted, started.Database)
		}
		return s, nil
	}
	if o.memory == "conductor" {
		if s.Servers, err = stack.FromEnv(); err != nil {
			return nil, err
		}
	} else {
		lake := lakefstest.NewServer()
		config := lake.Config()
		s.AccessKeyID, s.SecretAccessKey = config.AccessKeyID.Reveal(), config.SecretAccessKey.Reveal()
		if s.LakeFSURL, err = s.serve(lake); err != nil {
			return nil, err
		}
	}
	s.ConductorURL, err = s.serve(conductortest.New(nil))
	return s, err
}

func (s *servers) serve(handler http.Handler) (url string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	front := &http.Server{Handler: handler}
	var serving sync.WaitGroup
	serving.Go(func() { _ = front.Serve(listener) }) // until it is closed
	s.stops = append(s.stops, func() error {
		err := front.Close()
		serving.Wait()
		return err
	})
	return "http://" + listener.Addr().String(), nil
}

func (s *servers) stop() error {
	var all error
	for _, stop := range s.stops {
		all = errors.Join(all, stop())
	}
	s.stops = nil
	return all
}
