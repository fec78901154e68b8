package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perago/pkg/config"
	"perago/pkg/credential"
	"perago/pkg/worker"
)

const secret = "s3cr3t-value"

// hidden is a secret type that decodes itself, as an adapter's may.
type hidden struct{ value *string }

func (h *hidden) UnmarshalText(text []byte) error {
	if string(text) == "malformed" {
		return fmt.Errorf("cannot take %s", text)
	}
	value := string(text)
	h.value = &value
	return nil
}

type serverConfig struct {
	URL    string           `env:"EXAMPLE_URL, required" desc:"Address of the example server"`
	Secret hidden           `env:"EXAMPLE_SECRET, required" desc:"Secret of the example server"`
	Key    credential.Value `env:"EXAMPLE_KEY" desc:"Key of the example server" secret:"false"`
	Token  credential.Value `env:"EXAMPLE_TOKEN" desc:"Token of the example server"`
}

func (c serverConfig) Validate() []error {
	if strings.HasPrefix(c.URL, "http://") {
		return nil
	}
	return []error{fmt.Errorf("EXAMPLE_URL does not begin with http://")}
}

type exampleConfig struct {
	Server serverConfig
	Rate   float64 `env:"EXAMPLE_RATE,default=1.5" desc:"Rate"`
	Strict bool    `env:"EXAMPLE_STRICT" desc:"Strict"`
}

func environment(values map[string]string) config.Lookup {
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

func soundEnvironment() map[string]string {
	return map[string]string{
		"EXAMPLE_URL": "http://example", "EXAMPLE_SECRET": secret,
		"PERAGO_ALLOWED_REPOSITORIES": "models/main,data", "PERAGO_TASK_TYPES": "perago_stage, perago_stage_large", "PERAGO_HTTP_ADDR": "127.0.0.1:0",
	}
}

func TestEnvironmentIsRead(t *testing.T) {
	t.Parallel()
	values := soundEnvironment()
	values["PERAGO_SHUTDOWN_GRACE"] = "90s"
	values["PERAGO_DOMAINS"] = "NO_DOMAIN,gpu"
	values["PERAGO_CONCURRENCY"] = "" // set to nothing is not set
	values["PERAGO_LOG_LEVEL"] = "debug"
	var common worker.Config
	var own exampleConfig
	secrets, err := config.Read(environment(values), &common, &own)
	if err != nil {
		t.Fatal(err)
	}
	if common.ShutdownGrace != 90*time.Second || common.Concurrency != 4 || common.PollInterval != 100*time.Millisecond || common.ReasonLength != 500 {
		t.Errorf("config %+v", common)
	}
	if got := fmt.Sprint(common.Types()); got != "[perago_stage perago_stage_large]" {
		t.Errorf("task types %s", got)
	}
	if got := fmt.Sprintf("%q", common.Domains); got != `["NO_DOMAIN" "gpu"]` {
		t.Errorf("domains %s", got)
	}
	if common.LogLevel.String() != "DEBUG" {
		t.Errorf("level %s", common.LogLevel)
	}
	if allowed := common.Allowed(); !allowed.Allows("models", "main") || allowed.Allows("models", "other") || !allowed.Allows("data", "any") || allowed.Allows("else", "main") {
		t.Errorf("allowed %v", allowed)
	}
	if own.Server.URL != "http://example" || *own.Server.Secret.value != secret || own.Rate != 1.5 {
		t.Errorf("own %+v", own)
	}
	if len(secrets) != 1 || secrets[0] != secret {
		t.Errorf("secrets %q", secrets)
	}
}

func TestEveryFaultComesInOneMessage(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"EXAMPLE_URL":                      "http://replace-me:8080",
		"EXAMPLE_SECRET":                   "malformed",
		"EXAMPLE_RATE":                     "fast",
		"EXAMPLE_STRICT":                   "perhaps",
		"PERAGO_CONCURRENCY":               "many",
		"PERAGO_POLL_INTERVAL":             "100",
		"PERAGO_FAILURE_REASON_MAX_LENGTH": "0",
		"PERAGO_SHUTDOWN_GRACE":            "-1s",
		"PERAGO_HTTP_ADDR":                 "9461",
		"PERAGO_LOG_LEVEL":                 "loud",
		"PERAGO_LOG_FORMAT":                "xml",
		"PERAGO_CONDUCTOR_UI_URL":          "conductor",
		"PERAGO_TASK_TYPES":                "a,b,a",
		"PERAGO_DOMAINS":                   "d,d",
		"PERAGO_WORKER_ID_PREFIX":          "a b",
		"PERAGO_CONDUCTOR_ID":              "REPLACE-ME",
	}
	var common worker.Config
	var own exampleConfig
	_, err := config.Read(environment(values), &own, &common)
	var faults *config.Error
	if !errors.As(err, &faults) {
		t.Fatalf("error %v", err)
	}
	got := map[string]string{}
	for _, fault := range faults.Faults {
		name, sentence, _ := strings.Cut(fault.Error(), " ")
		if _, twice := got[name]; twice {
			t.Errorf("%s is named twice:\n%v", name, err)
		}
		got[name] = sentence
		if !strings.Contains(err.Error(), fault.Error()) {
			t.Errorf("the message lacks %v", fault)
		}
	}
	want := map[string]string{
		"EXAMPLE_URL":                      "still holds the placeholder replace-me: Address of the example server",
		"EXAMPLE_SECRET":                   "is malformed",
		"EXAMPLE_RATE":                     `is "fast"; it must be a number`,
		"EXAMPLE_STRICT":                   `is "perhaps"; it must be true or false`,
		"PERAGO_CONCURRENCY":               `is "many"; it must be a whole number`,
		"PERAGO_POLL_INTERVAL":             `is "100"; it must be a duration such as 500ms, 30s or 24h`,
		"PERAGO_FAILURE_REASON_MAX_LENGTH": "is 0; it must be at least 1 character",
		"PERAGO_SHUTDOWN_GRACE":            "is -1s; it must be between 0s and 1h",
		"PERAGO_HTTP_ADDR":                 `is "9461"; it must be host:port, such as 127.0.0.1:9461`,
		"PERAGO_LOG_LEVEL":                 `is "loud"; it must be debug, info, warn or error`,
		"PERAGO_LOG_FORMAT":                `is "xml"; it must be json or text`,
		"PERAGO_CONDUCTOR_UI_URL":          "must be an http or https address without user or password",
		"PERAGO_TASK_TYPES":                `names "a" twice`,
		"PERAGO_DOMAINS":                   `names "d" twice`,
		"PERAGO_WORKER_ID_PREFIX":          "must not hold white space",
		"PERAGO_CONDUCTOR_ID":              "still holds the placeholder replace-me: Name of this Conductor in branch names: the same in all processes of one Conductor, another one for each Conductor that shares the lake. Default: the server's URL",
		"PERAGO_ALLOWED_REPOSITORIES":      "is not set: Repositories and branches a task may touch, separated by commas: repo or repo/branch-glob; * allows all",
	}
	for name, sentence := range want {
		if got[name] != sentence {
			t.Errorf("%s %s, want %s", name, got[name], sentence)
		}
		delete(got, name)
	}
	if len(got) != 0 {
		t.Errorf("faults nobody made: %v", got)
	}
}

func TestSecretFromAFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, empty := write("good", secret+"\r\n"), write("empty", "\n")
	for name, row := range map[string]struct {
		set   map[string]string
		fault string
	}{
		"read":       {map[string]string{"EXAMPLE_SECRET": "", "EXAMPLE_SECRET_FILE": good}, ""},
		"both":       {map[string]string{"EXAMPLE_SECRET_FILE": good}, "EXAMPLE_SECRET and EXAMPLE_SECRET_FILE are both set; set one of them"},
		"empty":      {map[string]string{"EXAMPLE_SECRET": "", "EXAMPLE_SECRET_FILE": empty}, "EXAMPLE_SECRET_FILE names an empty file"},
		"not there":  {map[string]string{"EXAMPLE_SECRET": "", "EXAMPLE_SECRET_FILE": filepath.Join(folder, "none")}, "EXAMPLE_SECRET_FILE cannot be read: open " + filepath.Join(folder, "none") + ": no such file or directory"},
		"to renew":   {map[string]string{"EXAMPLE_TOKEN_FILE": good}, ""},
		"key":        {map[string]string{"EXAMPLE_KEY_FILE": good}, ""},
		"empty key":  {map[string]string{"EXAMPLE_KEY_FILE": empty}, "EXAMPLE_KEY_FILE names an empty file"},
		"no secret":  {map[string]string{"EXAMPLE_RATE_FILE": good}, ""},
		"none given": {map[string]string{"EXAMPLE_SECRET": ""}, "EXAMPLE_SECRET is not set: Secret of the example server"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(good, []byte(secret+"\r\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			values := soundEnvironment()
			for name, value := range row.set {
				values[name] = value
			}
			var own exampleConfig
			secrets, err := config.Read(environment(values), &own)
			var got string
			var faults *config.Error
			if errors.As(err, &faults) {
				if len(faults.Faults) != 1 {
					t.Errorf("%d faults: %v", len(faults.Faults), err)
				}
				got = faults.Faults[0].Error()
			}
			if got != row.fault {
				t.Errorf("fault %q, want %q", got, row.fault)
			}
			if row.fault == "" && (own.Server.Secret.value == nil || *own.Server.Secret.value != secret) {
				t.Errorf("secret %v", own.Server.Secret.value)
			}
			if name == "to renew" && (own.Server.Token.Reveal() != secret || len(secrets) != 2) {
				t.Errorf("a secret with a file: %q, %d secrets", own.Server.Token.Reveal(), len(secrets))
			}
			if name == "key" && (own.Server.Key.Reveal() != secret || len(secrets) != 1) {
				t.Errorf("a key id with a file, which is no secret: %q, %d secrets", own.Server.Key.Reveal(), len(secrets))
			}
			for _, value := range []credential.Value{own.Server.Token, own.Server.Key} {
				if value.IsZero() {
					continue
				}
				// What was read from a file is read there again.
				if err := os.WriteFile(good, []byte("renewed"), 0o600); err != nil {
					t.Fatal(err)
				}
				pair := credential.NewPair(value, credential.New("given"), nil)
				now, other, err := pair.Renew(t.Context(), pair.Current())
				if err != nil || !other || now.Key.Reveal() != "renewed" {
					t.Errorf("read again: %q, %v, %v", now.Key.Reveal(), other, err)
				}
			}
			for _, value := range secrets {
				if value != secret {
					t.Errorf("secret %q", value)
				}
			}
		})
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	all := config.Variables(exampleConfig{}, &worker.Config{})
	byName := map[string]config.Variable{}
	for _, variable := range all {
		if variable.Description == "" {
			t.Errorf("%s has no description", variable.Name)
		}
		byName[variable.Name] = variable
	}
	if all[0].Name != "EXAMPLE_URL" || !all[0].Required || all[0].Secret {
		t.Errorf("first %+v", all[0])
	}
	if v := byName["EXAMPLE_SECRET"]; !v.Secret || !v.Required {
		t.Errorf("%+v", v)
	}
	if v := byName["EXAMPLE_TOKEN"]; !v.Secret || !v.File || !v.Renewed {
		t.Errorf("%+v", v)
	}
	if v := byName["EXAMPLE_KEY"]; v.Secret || !v.File || !v.Renewed {
		t.Errorf("%+v", v)
	}
	if v := byName["EXAMPLE_SECRET"]; !v.File || v.Renewed {
		t.Errorf("%+v", v)
	}
	if v := byName["EXAMPLE_URL"]; v.File {
		t.Errorf("%+v", v)
	}
	if v := byName["EXAMPLE_RATE"]; v.Default != "1.5" || v.Required {
		t.Errorf("%+v", v)
	}
	if v := byName["PERAGO_ALLOWED_REPOSITORIES"]; !v.Required {
		t.Errorf("%+v", v)
	}
}
