package config_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"perago/pkg/config"
	"perago/pkg/worker"
)

// stubborn is a secret that repeats what it cannot take.
type stubborn struct{}

func (stubborn) UnmarshalText(text []byte) error {
	if strings.HasSuffix(string(text), "malformed") {
		return errors.New("cannot take " + string(text))
	}
	return nil
}

type stubbornConfig struct {
	Password *stubborn `env:"EXAMPLE_PASSWORD" desc:"Password of the example server"`
}

// FuzzEnvironment: any environment is a sound configuration, the same when it is read
// again, or faults that each name a variable of it and hold no secret.
func FuzzEnvironment(f *testing.F) {
	lines := func(changes ...string) string {
		values := soundEnvironment()
		for i := 0; i < len(changes); i += 2 {
			values[changes[i]] = changes[i+1]
		}
		text := ""
		for _, name := range slices.Sorted(maps.Keys(values)) {
			text += name + "=" + values[name] + "\n"
		}
		return text
	}
	f.Add(lines())
	f.Add(lines("PERAGO_TASK_TYPES", "a,,b, ,", "PERAGO_DOMAINS", "NO_DOMAIN,x", "PERAGO_ALLOWED_REPOSITORIES", "*,"))
	f.Add(lines("PERAGO_CONCURRENCY", "1e9", "PERAGO_POLL_INTERVAL", "-1ms", "PERAGO_LOG_LEVEL", "loud", "EXAMPLE_RATE", "NaN", "EXAMPLE_STRICT", "maybe"))
	f.Add(lines("EXAMPLE_PASSWORD", "malformed", "EXAMPLE_TOKEN", "x", "EXAMPLE_TOKEN_FILE", "/dev/null", "EXAMPLE_KEY_FILE", "/"))
	f.Add(lines("PERAGO_SHUTDOWN_GRACE", "1h0m1s", "PERAGO_CONDUCTOR_UI_URL", "http://u:p@h", "PERAGO_PPROF_ADDR", "0.0.0.0:1", "PERAGO_HTTP_ADDR", "x"))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		values := map[string]string{}
		for line := range strings.SplitSeq(text, "\n") {
			name, value, _ := strings.Cut(line, "=")
			if strings.HasSuffix(name, "_FILE") && value != "/" && value != "/dev/null" {
				value = "/nowhere/" + value // no file of this machine
			}
			values[name] = value
		}
		const canary = "canary-"
		for _, name := range []string{"EXAMPLE_SECRET", "EXAMPLE_TOKEN", "EXAMPLE_PASSWORD"} {
			if strings.Contains(text, canary) || values[name] == "" {
				continue
			}
			values[name] = canary + values[name]
		}
		var common worker.Config
		var example exampleConfig
		secrets, err := config.Read(environment(values), &common, &example, &stubbornConfig{})
		if err != nil {
			var faults *config.Error
			if !errors.As(err, &faults) || len(faults.Faults) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			known := map[string]bool{}
			for _, variable := range config.Variables(common, example, stubbornConfig{}) {
				known[variable.Name], known[variable.Name+"_FILE"] = true, variable.File
			}
			for _, fault := range faults.Faults {
				if name, _, _ := strings.Cut(fault.Error(), " "); !known[strings.TrimSuffix(name, ":")] {
					t.Fatalf("%q names no variable", fault)
				}
				if !strings.Contains(text, canary) && strings.Contains(fault.Error(), canary) {
					t.Fatalf("%q shows a secret", fault)
				}
			}
			return
		}
		var second worker.Config
		if _, err := config.Read(environment(values), &second, &exampleConfig{}); err != nil || !slices.Equal(second.TaskTypes, common.TaskTypes) || second.Concurrency != common.Concurrency {
			t.Fatalf("%+v, and then %+v, %v", common, second, err)
		}
		if len(common.Validate()) > 0 || len(common.Allowed()) == 0 || common.Concurrency < 1 || common.PollInterval <= 0 {
			t.Fatalf("accepted %+v", common)
		}
		for _, secret := range secrets {
			if secret == "" {
				t.Fatal("a secret that is nothing")
			}
		}
		for _, name := range slices.Concat(common.TaskTypes, common.Domains) {
			if name == "" || strings.TrimSpace(name) != name {
				t.Fatalf("polls %q of %q", name, slices.Concat(common.TaskTypes, common.Domains))
			}
		}
	})
}
