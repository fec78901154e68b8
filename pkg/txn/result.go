package txn

import (
	"errors"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Result is what a task's end means for Conductor.
type Result struct {
	// Update is false for a stale attempt: it writes nothing, to lakeFS or to
	// Conductor.
	Update bool
	Status TaskStatus
	// Outcome is the metric label: completed, failed, terminal, stale or handed_back.
	Outcome string
}

// ErrStopped is work that its own worker cut short, because the process stops.
var ErrStopped = errors.New("the worker was stopped")

// ResultOf is the one table that turns an error of a use case into a Conductor
// status. Its rows are those of "Results" in docs/protocol.md.
//
// A stage or a checkout that is cut short has put nothing out, so another worker may
// begin it anew: IN_PROGRESS without a lease extension puts the task back into its
// queue and spends no retry. A publish may have sent its merge, and a cleanup is not
// worth it.
func ResultOf(task TaskType, err error) Result {
	var stale *StaleAttemptError
	var terminal *TerminalError
	switch {
	case err == nil:
		return Result{Update: true, Status: TaskCompleted, Outcome: "completed"}
	case errors.As(err, &stale):
		return Result{Outcome: "stale"}
	case errors.As(err, &terminal), errors.As(err, new(*TakenBackError)):
		return Result{Update: true, Status: TaskFailedWithTerminalError, Outcome: "terminal"}
	case errors.Is(err, ErrStopped) && (task.IsStage() || task.IsCheckout()):
		return Result{Update: true, Status: TaskInProgress, Outcome: outcomeHandedBack}
	}
	return Result{Update: true, Status: TaskFailed, Outcome: "failed"}
}

const outcomeHandedBack = "handed_back"

// HandedBack says that the task goes back into its queue.
func (r Result) HandedBack() bool { return r.Outcome == outcomeHandedBack }

// DefaultReasonLength is the limit of a reason in characters.
const DefaultReasonLength = 500

// Reason makes one line of an error for Conductor's reasonForIncompletion (OneLine),
// in which secrets are [redacted], at most limit characters long; 0 is no limit. The
// cause stands last in most errors. So a reason that is too long loses the digits of
// commit ids first, then the middle of long names, and only then its end.
func Reason(err error, limit int, secrets ...string) string {
	text := OneLine(Redact(err.Error(), secrets...))
	for _, shorten := range []func(string) string{shortIDs, shortNames} {
		if limit <= 0 || utf8.RuneCountInString(text) <= limit {
			return text
		}
		text = shorten(text)
	}
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// fullID is a commit id, with the "ref=" before it where it is meant to be copied.
var fullID = regexp.MustCompile(`(?:ref=)?\b[0-9a-f]{64}\b`)

func shortIDs(text string) string {
	return fullID.ReplaceAllStringFunc(text, func(id string) string {
		if strings.HasPrefix(id, "ref=") {
			return id
		}
		return CommitID(id).Short()
	})
}

// longestName is how many characters of a name stay in a reason that is too long.
const longestName = 100

// shortNames takes the middle out of long words, such as paths.
func shortNames(text string) string {
	words := strings.Split(text, " ")
	for i, word := range words {
		if runes := []rune(word); len(runes) > longestName {
			words[i] = string(runes[:longestName/2]) + "…" + string(runes[len(runes)-longestName/2+1:])
		}
	}
	return strings.Join(words, " ")
}

// OneLine makes one line of a text that came from outside: line breaks and other
// control characters become spaces, and what is not UTF-8 a replacement character.
// A NUL, as a hook's message may hold, is more than some databases behind a
// Conductor take.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

// Redact replaces every secret in a text.
func Redact(text string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[redacted]")
		}
	}
	return text
}
