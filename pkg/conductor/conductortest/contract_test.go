package conductortest_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"perago/e2e/stack"
	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
)

// TestContractOnMemoryServer runs each row on a server of its own, in virtual
// time, in the manner of each version.
func TestContractOnMemoryServer(t *testing.T) {
	for _, version := range conductortest.Versions() {
		t.Run(string(version), func(t *testing.T) {
			conductortest.Contract(t, func(t *testing.T, row func(*testing.T, conductortest.Conductor)) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const address = "http://conductor.test"
					transport := conductortest.Transport(conductortest.NewVersion(time.Now, version))
					client, err := conductor.New(conductor.Config{ServerURL: address}, transport)
					if err != nil {
						t.Fatal(err)
					}
					row(t, conductortest.Conductor{Client: client, Operator: conductortest.NewOperator(address, transport), Version: version})
				})
			})
		})
	}
}

// TestContractOnRealServer holds the real server to the contract: what the fake
// does is only worth as much as this.
func TestContractOnRealServer(t *testing.T) {
	if stack.Short(t) {
		return
	}
	servers := stack.Require(t)
	address, version := servers.ConductorURL, conductortest.InTheMannerOf(servers.ConductorVersion)
	onReal := func(t *testing.T, row func(*testing.T, conductortest.Conductor)) {
		t.Parallel()
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		client, err := conductor.New(conductor.Config{ServerURL: address}, transport)
		if err != nil {
			t.Fatal(err)
		}
		row(t, conductortest.Conductor{Client: client, Operator: conductortest.NewOperator(address, transport), Version: version})
	}
	conductortest.Contract(t, onReal)
	conductortest.ServerContract(t, onReal)
}
