package main

import (
	"errors"
	"net"
	"net/http"
	"sync"

	"perago/e2e/stack"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs/lakefstest"
)

// memoryServers are both memory servers on sockets of their own.
func memoryServers() (_ stack.Servers, stop func(), err error) {
	lake := lakefstest.NewServer()
	config := lake.Config()
	servers := stack.Servers{AccessKeyID: config.AccessKeyID, SecretAccessKey: config.SecretAccessKey.Reveal()}
	var fronts []*http.Server
	var serving sync.WaitGroup
	stop = func() {
		for _, front := range fronts {
			_ = front.Close()
		}
		serving.Wait()
	}
	serve := func(handler http.Handler) (string, error) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		front := &http.Server{Handler: handler}
		fronts = append(fronts, front)
		serving.Go(func() { _ = front.Serve(listener) }) // until it is closed
		return "http://" + listener.Addr().String(), nil
	}
	var first, second error
	servers.ConductorURL, first = serve(conductortest.New(nil))
	servers.LakeFSURL, second = serve(lake)
	if err := errors.Join(first, second); err != nil {
		stop()
		return servers, nil, err
	}
	return servers, stop, nil
}
