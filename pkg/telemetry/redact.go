package telemetry

import (
	"slices"
	"sync"

	"perago/pkg/credential"
	"perago/pkg/txn"
)

// shortestSecret keeps a value such as "a" from tearing up every line: a secret
// that short protects nothing.
const shortestSecret = 4

// Redactor knows the secret values of a process and replaces them in text, in every
// form in which a server may have repeated them and a log line holds them. It is safe
// for concurrent use; a nil Redactor knows none.
type Redactor struct {
	mu sync.RWMutex
	// known are the secrets as they are, forms all of their forms, longest first, so
	// that a secret inside another does not leave a remainder.
	known, forms []string
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
		if len(secret) < shortestSecret || slices.Contains(r.known, secret) {
			continue
		}
		r.known = append(r.known, secret)
		r.forms = append(r.forms, credential.Forms(secret)...)
	}
	slices.SortStableFunc(r.forms, func(a, b string) int { return len(b) - len(a) })
}

// Values are the secrets known now in all their forms, longest first.
func (r *Redactor) Values() []string {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.forms)
}

// Text is s with every known secret replaced by [redacted].
func (r *Redactor) Text(s string) string {
	return txn.Redact(s, r.Values()...)
}
