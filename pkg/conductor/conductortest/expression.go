package conductortest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

var expression = regexp.MustCompile(`\$\{([^}]*)\}`)

// resolve replaces every ${...} in a value. A string that is one expression
// becomes what it names, whatever its type; inside a longer string it becomes
// text. What names nothing is null.
func (w *workflow) resolve(value any) any {
	switch value := value.(type) {
	case object:
		resolved := make(object, len(value))
		for key, inner := range value {
			resolved[key] = w.resolve(inner)
		}
		return resolved
	case []any:
		resolved := make([]any, len(value))
		for i, inner := range value {
			resolved[i] = w.resolve(inner)
		}
		return resolved
	case string:
		if whole := expression.FindStringSubmatch(value); whole != nil && whole[0] == value {
			return w.lookup(whole[1])
		}
		return expression.ReplaceAllStringFunc(value, func(one string) string {
			return text(w.lookup(strings.TrimSuffix(strings.TrimPrefix(one, "${"), "}")))
		})
	}
	return value
}

func (w *workflow) lookup(path string) any {
	segments := strings.Split(path, ".")
	var at any
	if segments[0] == "workflow" {
		at = object{
			"input": w.Input, "output": w.Output, "workflowId": string(w.WorkflowID), "status": string(w.Status),
			"workflowType": w.WorkflowName, "version": w.WorkflowVersion,
			"correlationId": w.CorrelationID, "reasonForIncompletion": w.Reason,
		}
	} else {
		t := w.last(segments[0])
		if t == nil {
			return nil
		}
		// Not the whole task: these are the names that expressions know, and seq
		// is none of them.
		at = object{
			"input": t.InputData, "output": t.OutputData, "taskId": string(t.TaskID), "status": string(t.Status),
			"referenceTaskName": t.ReferenceTaskName, "retryCount": t.RetryCount, "iteration": t.Iteration,
			"startTime": t.StartTime, "endTime": t.EndTime, "workflowInstanceId": string(t.WorkflowInstanceID),
			"taskDefName": t.TaskDefName, "workerId": t.WorkerID, "reasonForIncompletion": t.Reason,
		}
	}
	for _, segment := range segments[1:] {
		fields, ok := at.(object)
		if !ok {
			return nil
		}
		at = fields[segment]
	}
	return clone(at)
}

func text(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case string:
		return value
	case json.Number:
		return value.String()
	}
	return fmt.Sprint(value)
}
