package conductor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// mostTasks is above what any answer lists: of a poll, or of one workflow.
const mostTasks = 100_000

// tasksOf reads a list of tasks one by one and ends at the first that is none. Read
// all at once, a few bytes of an answer could ask for a thousand bytes of memory:
// a list of millions of empty objects.
func tasksOf(raw json.RawMessage, take func(wireTask)) error {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('[') {
		return errors.New("not a list of tasks")
	}
	for count := 0; decoder.More(); count++ {
		var one wireTask
		switch err := decoder.Decode(&one); {
		case err != nil:
			return fmt.Errorf("not a list of tasks: %w", err)
		case !one.complete():
			return errors.New("a task without an id, a workflow or a status")
		case count == mostTasks:
			return fmt.Errorf("more than %d tasks", mostTasks)
		}
		take(one)
	}
	if _, err := decoder.Token(); err != nil {
		return fmt.Errorf("not a list of tasks: %w", err)
	}
	if decoder.More() {
		return errors.New("more behind a list of tasks")
	}
	return nil
}
