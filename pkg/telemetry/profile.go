package telemetry

import (
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"
)

// longestProfile bounds what ?seconds= may ask for.
const longestProfile = 10 * time.Minute

// CheckProfileAddress refuses every address that another host could reach: a
// profile shows what a process works on.
func CheckProfileAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("it must be host:port, such as 127.0.0.1:6060")
	}
	if host == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return errors.New("it must be a loopback address, such as 127.0.0.1:6060")
	}
	return nil
}

// ListenProfiles serves /debug/pprof/ on a loopback address until it is closed.
func ListenProfiles(address string) (*HealthServer, error) {
	if err := CheckProfileAddress(address); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return listen(address, mux, longestProfile)
}
