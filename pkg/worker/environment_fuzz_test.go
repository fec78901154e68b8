package worker

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"perago/pkg/txn"
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
		var config Config
		var example exampleConfig
		secrets, err := ReadEnvironment(environment(values), &config, &example, &stubbornConfig{})
		if err != nil {
			var faults *ConfigError
			if !errors.As(err, &faults) || len(faults.Faults) == 0 {
				t.Fatalf("%T: %v", err, err)
			}
			known := map[string]bool{}
			for _, variable := range Variables(config, example, stubbornConfig{}) {
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
		var second Config
		if _, err := ReadEnvironment(environment(values), &second, &exampleConfig{}); err != nil || !slices.Equal(second.TaskTypes, config.TaskTypes) || second.Concurrency != config.Concurrency {
			t.Fatalf("%+v, and then %+v, %v", config, second, err)
		}
		if len(config.Validate()) > 0 || len(config.Allowed()) == 0 || config.Concurrency < 1 || config.PollInterval <= 0 {
			t.Fatalf("accepted %+v", config)
		}
		for _, secret := range secrets {
			if secret == "" {
				t.Fatal("a secret that is nothing")
			}
		}
		for _, name := range slices.Concat(config.TaskTypes, config.Domains) {
			if name == "" || strings.TrimSpace(name) != name {
				t.Fatalf("polls %q of %q", name, slices.Concat(config.TaskTypes, config.Domains))
			}
		}
	})
}

// FuzzLimits: a TaskDef that is accepted gives a lease that has not ended, and more
// than one heartbeat in it.
func FuzzLimits(f *testing.F) {
	f.Add("perago_stage", int64(60), int64(0), "")
	f.Add("perago_stage", int64(9_223_372_037), int64(9_223_372_038), "")
	f.Add("perago_cleanup", int64(1), int64(2), "")
	f.Add("perago_publish_large", int64(86), int64(0), `{"budget":{"observed_merge_p99_seconds":5,"safety_margin_seconds":5,"lakefs_merge_timeout_seconds":30,"conductor_completion_timeout_seconds":10,"worker_shutdown_grace_seconds":20,"heartbeat_interval_seconds":20}}`)
	f.Fuzz(func(t *testing.T, name string, response, total int64, template string) {
		limits, err := LimitsOf(txn.TaskDefinition{Name: txn.TaskType(name), ResponseTimeoutSeconds: response, TimeoutSeconds: total, InputTemplate: []byte(template)})
		if err != nil {
			return
		}
		sent := time.Now()
		lease := newLease(sent, limits)
		if limits.Heartbeat <= 0 || limits.Heartbeat > limits.Response || limits.Completion < 0 || (limits.Total == 0) != (total == 0) ||
			!lease.deadline().After(sent) || lease.deadline().Add(limits.Completion).Before(lease.deadline()) {
			t.Fatalf("%+v, a lease until %s", limits, lease.deadline())
		}
	})
}
