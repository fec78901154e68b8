package config

import (
	"runtime"
	"runtime/debug"

	"github.com/google/uuid"

	"perago/pkg/txn"
)

// NewExecutionID gives a fresh UUIDv7.
func NewExecutionID() (txn.ExecutionID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	return txn.ParseExecutionID(id.String())
}

// Version is the module's version, or the commit the binary was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown (" + runtime.Version() + ")"
	}
	text := info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" && (text == "" || text == "(devel)") {
			text = setting.Value
		}
	}
	if text == "" {
		text = "(devel)"
	}
	return text + " (" + runtime.Version() + ")"
}
