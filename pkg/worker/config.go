package worker

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"perago/pkg/config"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// noDomain in PERAGO_DOMAINS is the queue without a domain.
const noDomain = "NO_DOMAIN"

// Config is the part of a worker's configuration that every binary has.
type Config struct {
	TaskTypes      []string      `env:"PERAGO_TASK_TYPES" desc:"Task types to poll, separated by commas; several TaskDefs, several budgets"`
	Domains        []string      `env:"PERAGO_DOMAINS" desc:"Task domains to poll, separated by commas; when set only these are polled, NO_DOMAIN is the queue without one"`
	Concurrency    int           `env:"PERAGO_CONCURRENCY,default=4" desc:"Tasks at once, over all task types"`
	PollInterval   time.Duration `env:"PERAGO_POLL_INTERVAL,default=100ms" desc:"Pace at which an empty queue is asked; it slows down to 1s while a queue stays empty"`
	WorkerIDPrefix string        `env:"PERAGO_WORKER_ID_PREFIX" desc:"Beginning of the worker id that Conductor shows; every process start adds a UUID"`
	ReasonLength   int           `env:"PERAGO_FAILURE_REASON_MAX_LENGTH,default=500" desc:"Longest reasonForIncompletion, in characters"`
	ShutdownGrace  time.Duration `env:"PERAGO_SHUTDOWN_GRACE,default=20s" desc:"Time for running tasks after a stop; the process may take 8s more to report what it had to interrupt"`
	HTTPAddr       string        `env:"PERAGO_HTTP_ADDR" desc:"Address of /livez, /readyz and /metrics; each worker on a host needs its own, port 0 takes any free one"`
	LogLevel       slog.Level    `env:"PERAGO_LOG_LEVEL,default=info" desc:"Lowest level that is logged: debug, info, warn or error"`
	LogFormat      string        `env:"PERAGO_LOG_FORMAT,default=json" desc:"Log lines on stderr: json or text"`
	ProfileAddr    string        `env:"PERAGO_PPROF_ADDR" desc:"Address of /debug/pprof/, for go tool pprof; only a loopback one, and off unless it is set"`
	config.Scope
	Traces         telemetry.TraceConfig
	ConductorUIURL string `env:"PERAGO_CONDUCTOR_UI_URL" desc:"Address of Conductor's user interface; commits link to their workflow there when it is set"`
}

// Validate reports every fault at once; each begins with its variable.
func (c Config) Validate() []error {
	var faults []error
	fault := func(variable, format string, arguments ...any) {
		faults = append(faults, fmt.Errorf("%s %s", variable, fmt.Sprintf(format, arguments...)))
	}
	for _, list := range []struct {
		variable string
		values   []string
	}{{"PERAGO_TASK_TYPES", c.TaskTypes}, {"PERAGO_DOMAINS", c.Domains}} {
		// A queue that is called nothing is the one without a domain, which nobody
		// means by a comma too many.
		if slices.Contains(list.values, "") {
			fault(list.variable, "has a comma too many, so one of its names is empty; take it out")
		}
		if value, again := repeated(list.values); again && value != "" {
			fault(list.variable, "names %q twice", value)
		}
	}
	if c.Concurrency < 1 || c.Concurrency > 1000 {
		fault("PERAGO_CONCURRENCY", "is %d; it must be between 1 and 1000", c.Concurrency)
	}
	// Below a few milliseconds the polls are all the server has to do.
	if c.PollInterval < 5*time.Millisecond || c.PollInterval > time.Minute {
		fault("PERAGO_POLL_INTERVAL", "is %s; it must be between 5ms and 1m", c.PollInterval)
	}
	if strings.ContainsAny(c.WorkerIDPrefix, " \t\r\n") {
		fault("PERAGO_WORKER_ID_PREFIX", "must not hold white space")
	}
	if c.ReasonLength < 1 {
		fault("PERAGO_FAILURE_REASON_MAX_LENGTH", "is %d; it must be at least 1 character", c.ReasonLength)
	}
	if c.ShutdownGrace < 0 || c.ShutdownGrace > time.Hour {
		fault("PERAGO_SHUTDOWN_GRACE", "is %s; it must be between 0s and 1h", c.ShutdownGrace)
	}
	if _, _, err := net.SplitHostPort(c.HTTPAddr); err != nil {
		fault("PERAGO_HTTP_ADDR", "is %q; it must be host:port, such as 127.0.0.1:9461", c.HTTPAddr)
	}
	if err := telemetry.CheckProfileAddress(c.ProfileAddr); c.ProfileAddr != "" && err != nil {
		fault("PERAGO_PPROF_ADDR", "is %q; %v", c.ProfileAddr, err)
	}
	if _, err := telemetry.ParseLogFormat(c.LogFormat); err != nil {
		fault("PERAGO_LOG_FORMAT", "is %q; it must be json or text", c.LogFormat)
	}
	if c.ConductorUIURL != "" {
		if u, err := url.Parse(c.ConductorUIURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			fault("PERAGO_CONDUCTOR_UI_URL", "must be an http or https address without user or password")
		}
	}
	return faults
}

// Types are the task types to poll.
func (c Config) Types() []txn.TaskType {
	var types []txn.TaskType
	for _, name := range c.TaskTypes {
		types = append(types, txn.TaskType(name))
	}
	return types
}

// domains are the queues' domains, "" for the queue without one.
func (c Config) domains() []string {
	if len(c.Domains) == 0 {
		return []string{""}
	}
	var domains []string
	for _, domain := range c.Domains {
		if domain == noDomain {
			domain = ""
		}
		domains = append(domains, domain)
	}
	return domains
}

// WorkflowURL is a workflow's page in Conductor's user interface; nil when its
// address is not configured.
func (c Config) WorkflowURL() func(txn.WorkflowID) string {
	if c.ConductorUIURL == "" {
		return nil
	}
	base := strings.TrimRight(c.ConductorUIURL, "/")
	return func(id txn.WorkflowID) string { return base + "/execution/" + url.PathEscape(string(id)) }
}

func repeated(values []string) (string, bool) {
	seen := map[string]bool{}
	for _, value := range values {
		if seen[value] {
			return value, true
		}
		seen[value] = true
	}
	return "", false
}
