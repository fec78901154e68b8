package main

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	"perago/e2e/stack"
	"perago/pkg/conductor/conductortest"
	"perago/pkg/lakefs/lakefstest"
)

// serversOf are the real servers that with-stack started, or the memory servers of
// the tests on sockets of their own, Conductor in the manner of a version.
func serversOf(memory string, manner conductortest.Version) (servers stack.Servers, stop func(), err error) {
	if memory != "both" {
		if servers, err = stack.FromEnv(); err != nil {
			return servers, nil, err
		}
	}
	var fronts []*http.Server
	var serving sync.WaitGroup
	stop = func() {
		for _, front := range fronts {
			_ = front.Close()
		}
		serving.Wait()
	}
	serve := func(handler http.Handler, url *string) {
		listener, failed := net.Listen("tcp", "127.0.0.1:0")
		if failed != nil {
			err = failed
			return
		}
		front := &http.Server{Handler: handler}
		fronts = append(fronts, front)
		serving.Go(func() { _ = front.Serve(listener) }) // until it is closed
		*url = "http://" + listener.Addr().String()
	}
	switch memory {
	case "", "both", "conductor", "lakefs":
	default:
		return servers, nil, fmt.Errorf("-memory is %q; it must be conductor, lakefs or both", memory)
	}
	if !slices.Contains(conductortest.Versions(), manner) {
		return servers, nil, fmt.Errorf("-manner is %q; the versions are %q", manner, conductortest.Versions())
	}
	if memory == "conductor" || memory == "both" {
		serve(conductortest.NewVersion(nil, manner), &servers.ConductorURL)
	}
	if memory == "lakefs" || memory == "both" {
		lake := lakefstest.NewServer()
		config := lake.Config()
		servers.AccessKeyID, servers.SecretAccessKey = config.AccessKeyID.Reveal(), config.SecretAccessKey.Reveal()
		serve(lake, &servers.LakeFSURL)
	}
	if err != nil {
		stop()
		return servers, nil, err
	}
	return servers, stop, nil
}
