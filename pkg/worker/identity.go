package worker

import (
	"net/url"
	"strings"

	"github.com/google/uuid"

	"perago/pkg/txn"
)

// WorkflowURL is a workflow's page in Conductor's user interface; nil when its
// address is not configured.
func (c Config) WorkflowURL() func(txn.WorkflowID) string {
	if c.ConductorUIURL == "" {
		return nil
	}
	base := strings.TrimRight(c.ConductorUIURL, "/")
	return func(id txn.WorkflowID) string { return base + "/execution/" + url.PathEscape(string(id)) }
}

// NewExecutionID gives a fresh UUIDv7.
func NewExecutionID() (txn.ExecutionID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	return txn.ParseExecutionID(id.String())
}
