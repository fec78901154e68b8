package txn

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Budget bounds the time of one publication. It stands in the publish TaskDef
// under inputTemplate.budget and nowhere else; the worker takes it from the
// polled task's own definition, so tuning it needs no redeploy. It is not a
// quota of objects.
type Budget struct {
	// ObservedMergeP99 is what the operator measured.
	ObservedMergeP99 time.Duration
	// SafetyMargin is added to it.
	SafetyMargin time.Duration
	// MergeTimeout bounds one merge call, from when it is sent.
	MergeTimeout time.Duration
	// CompletionTimeout bounds the update that completes the task.
	CompletionTimeout time.Duration
	// ShutdownGrace is what a stopping worker may still take.
	ShutdownGrace time.Duration
	// HeartbeatInterval is how often the lease is extended.
	HeartbeatInterval time.Duration
}

// budgetDocument is the budget as it stands in JSON, in seconds, which may be
// fractions so that a test TaskDef with a response timeout of 3 can be sound.
type budgetDocument struct {
	ObservedMergeP99  *float64 `json:"observed_merge_p99_seconds"`
	SafetyMargin      *float64 `json:"safety_margin_seconds"`
	MergeTimeout      *float64 `json:"lakefs_merge_timeout_seconds"`
	CompletionTimeout *float64 `json:"conductor_completion_timeout_seconds"`
	ShutdownGrace     *float64 `json:"worker_shutdown_grace_seconds"`
	HeartbeatInterval *float64 `json:"heartbeat_interval_seconds"`
}

// BudgetOf reads the budget of a publish TaskDef. A missing, unknown or negative
// number is an error that names it.
func BudgetOf(definition TaskDefinition) (Budget, error) {
	var template map[string]json.RawMessage
	if len(definition.InputTemplate) > 0 {
		if err := json.Unmarshal(definition.InputTemplate, &template); err != nil {
			return Budget{}, fmt.Errorf("TaskDef %s: inputTemplate is not a JSON object: %w", definition.Name, err)
		}
	}
	raw, ok := template["budget"]
	if !ok {
		return Budget{}, fmt.Errorf("TaskDef %s has no inputTemplate.budget; register the shipped one and tune its numbers", definition.Name)
	}
	budget, err := parseBudget(raw)
	if err != nil {
		return Budget{}, fmt.Errorf("TaskDef %s: inputTemplate.%w", definition.Name, err)
	}
	return budget, nil
}

func parseBudget(raw json.RawMessage) (Budget, error) {
	var document budgetDocument
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&document); err != nil {
		return Budget{}, fmt.Errorf("budget: %w", err)
	}
	var budget Budget
	var faults []error
	for _, number := range []struct {
		name  string
		value *float64
		into  *time.Duration
	}{
		{"observed_merge_p99_seconds", document.ObservedMergeP99, &budget.ObservedMergeP99},
		{"safety_margin_seconds", document.SafetyMargin, &budget.SafetyMargin},
		{"lakefs_merge_timeout_seconds", document.MergeTimeout, &budget.MergeTimeout},
		{"conductor_completion_timeout_seconds", document.CompletionTimeout, &budget.CompletionTimeout},
		{"worker_shutdown_grace_seconds", document.ShutdownGrace, &budget.ShutdownGrace},
		{"heartbeat_interval_seconds", document.HeartbeatInterval, &budget.HeartbeatInterval},
	} {
		switch {
		case number.value == nil:
			faults = append(faults, fmt.Errorf("budget.%s is missing", number.name))
		case *number.value < 0 || *number.value > maxBudgetSeconds:
			faults = append(faults, fmt.Errorf("budget.%s is %v; it must be between 0 and %d seconds", number.name, *number.value, maxBudgetSeconds))
		default:
			*number.into = time.Duration(*number.value * float64(time.Second))
		}
	}
	none := func(value *float64) bool { return value != nil && *value >= 0 && *value < time.Nanosecond.Seconds() }
	if none(document.MergeTimeout) {
		faults = append(faults, errors.New("budget.lakefs_merge_timeout_seconds is 0; a merge needs time"))
	}
	if none(document.HeartbeatInterval) {
		faults = append(faults, errors.New("budget.heartbeat_interval_seconds is 0; the lease could not be extended"))
	}
	return budget, errors.Join(faults...)
}

// maxBudgetSeconds keeps a slip of the finger (milliseconds for seconds) from
// becoming a lease of days.
const maxBudgetSeconds = 86_400

// RuleError is a TaskDef that breaks a rule.
type RuleError struct {
	// Field is the field of the TaskDef to change.
	Field string
	// Sentence says what is wrong and what to do.
	Sentence string
}

func (e *RuleError) Error() string { return e.Sentence }

// CheckBudget holds the two rules between a budget and its TaskDef. The merge
// must have its measured time and the margin, and the lease must cover a merge,
// its completion, a shutdown and one heartbeat that came late. Each error that it
// joins is a *RuleError.
func CheckBudget(definition TaskDefinition, budget Budget) error {
	var faults []error
	broken := func(field, format string, arguments ...any) error {
		return &RuleError{Field: field, Sentence: fmt.Sprintf(format, arguments...)}
	}
	if need := budget.ObservedMergeP99 + budget.SafetyMargin; budget.MergeTimeout < need {
		faults = append(faults, broken("inputTemplate.budget.lakefs_merge_timeout_seconds", "TaskDef %s: budget.lakefs_merge_timeout_seconds is %s, less than observed_merge_p99_seconds + safety_margin_seconds = %s; raise it to at least %s",
			definition.Name, seconds(budget.MergeTimeout), seconds(need), seconds(need)))
	}
	need := budget.MergeTimeout + budget.CompletionTimeout + budget.ShutdownGrace + budget.HeartbeatInterval
	if Timeout(definition.ResponseTimeoutSeconds) < need {
		faults = append(faults, broken("responseTimeoutSeconds", "TaskDef %s: responseTimeoutSeconds is %d, less than merge timeout + completion + shutdown grace + heartbeat = %s; raise it to at least %s",
			definition.Name, definition.ResponseTimeoutSeconds, seconds(need), seconds(need)))
	}
	return errors.Join(faults...)
}

// CheckTaskDefinition holds the rules for every TaskDef a worker polls: there is
// a response timeout, and it is below the total timeout unless that is 0. A
// publish TaskDef's budget is checked by CheckPublishDefinition.
func CheckTaskDefinition(definition TaskDefinition) error {
	switch {
	case definition.ResponseTimeoutSeconds <= 0:
		return fmt.Errorf("TaskDef %s: responseTimeoutSeconds is %d; a dead worker's task would never be given to another, set it to 60", definition.Name, definition.ResponseTimeoutSeconds)
	case definition.TimeoutSeconds < 0:
		return fmt.Errorf("TaskDef %s: timeoutSeconds is %d; set it to 0 for no total timeout", definition.Name, definition.TimeoutSeconds)
	case definition.TimeoutSeconds != 0 && definition.ResponseTimeoutSeconds >= definition.TimeoutSeconds:
		return fmt.Errorf("TaskDef %s: responseTimeoutSeconds is %d, not below timeoutSeconds %d; lower it or set timeoutSeconds to 0", definition.Name, definition.ResponseTimeoutSeconds, definition.TimeoutSeconds)
	}
	return nil
}

// CheckPublishDefinition holds every rule of a publish TaskDef and gives its
// budget.
func CheckPublishDefinition(definition TaskDefinition) (Budget, error) {
	budget, err := BudgetOf(definition)
	if err != nil {
		return Budget{}, errors.Join(CheckTaskDefinition(definition), err)
	}
	return budget, errors.Join(CheckTaskDefinition(definition), CheckBudget(definition, budget))
}

// Heartbeat is how often a task's lease is extended when no budget says so: a
// third of its response timeout, so that one lost beat costs nothing.
func Heartbeat(definition TaskDefinition) time.Duration {
	return Timeout(definition.ResponseTimeoutSeconds) / 3
}

// longestTimeout is what every longer timeout is taken for. People write large
// numbers for "never", and a time.Duration of 292 years is the end of its range:
// one second more is a lease that ended long ago.
const longestTimeout = 10 * 366 * 24 * time.Hour

// Timeout is a timeout of a TaskDef, which has it in seconds.
func Timeout(seconds int64) time.Duration {
	return time.Duration(min(seconds, int64(longestTimeout/time.Second))) * time.Second
}

func seconds(d time.Duration) string { return fmt.Sprintf("%gs", d.Seconds()) }
