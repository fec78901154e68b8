package telemetry

import (
	"encoding/json"
	"slices"
	"strconv"
	"sync"

	"perago/pkg/txn"
)

// shortestSecret keeps a value such as "a" from tearing up every line: a secret
// that short protects nothing.
const shortestSecret = 4

// Redactor knows the secret values of a process and replaces them in text. It is
// safe for concurrent use; a nil Redactor knows none.
type Redactor struct {
	mu sync.RWMutex
	// values are the secrets as they are, longest first, so that a secret inside
	// another does not leave a remainder.
	values []string
	// encoded are the same with the forms in which a JSON or text log line holds
	// them.
	encoded []string
}

// NewRedactor knows the given secrets. Values of less than 4 bytes are left out.
func NewRedactor(secrets ...string) *Redactor {
	r := &Redactor{}
	r.Add(secrets...)
	return r
}

// Add makes more secrets known, such as one read again from its file.
func (r *Redactor) Add(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, secret := range secrets {
		if len(secret) < shortestSecret || slices.Contains(r.values, secret) {
			continue
		}
		r.values = append(r.values, secret)
		r.encoded = append(r.encoded, secret)
		if quoted, err := json.Marshal(secret); err == nil {
			r.encoded = append(r.encoded, string(quoted[1:len(quoted)-1]))
		}
		quoted := strconv.Quote(secret)
		r.encoded = append(r.encoded, quoted[1:len(quoted)-1])
	}
	longestFirst := func(a, b string) int { return len(b) - len(a) }
	slices.SortStableFunc(r.values, longestFirst)
	slices.SortStableFunc(r.encoded, longestFirst)
}

// Values are the secrets known now, longest first.
func (r *Redactor) Values() []string {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.values)
}

// Text is s with every known secret replaced by [redacted].
func (r *Redactor) Text(s string) string {
	return txn.Redact(s, r.Values()...)
}

func (r *Redactor) encodedText(s string) string {
	if r == nil {
		return s
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return txn.Redact(s, r.encoded...)
}
