package txn

// Effect says what a call to a server does when it is sent twice.
type Effect int

// The effects.
const (
	// EffectRepeatable: done twice is done once. Reads are of this kind.
	EffectRepeatable Effect = iota
	// EffectOnce: sent twice the call acts twice, or is refused.
	EffectOnce
	// EffectMerge is EffectOnce for a merge, of which only the answers that the
	// protocol lists are a refusal.
	EffectMerge
)

// Doubt is the class of a call that was sent and whose answer does not say what it
// did.
func (e Effect) Doubt() error {
	if e == EffectRepeatable {
		return ErrRetryable
	}
	return ErrUnknownOutcome
}

// Answer is what an adapter knows of an answer that is not the success it wanted.
type Answer struct {
	// Status is the HTTP status.
	Status int
	// Own says that the answer is in the server's own form. Anything between the
	// worker and the server can answer with any status, without the server knowing.
	Own bool
	// Kind is what the refusal is about, nil where that is not known.
	Kind error
}

// ClassOf is the one table, for all servers, that gives an answer its class:
// ErrRefused, ErrRetryable or ErrUnknownOutcome. Its rows are those of "Answers of
// servers" in docs/protocol.md.
func ClassOf(effect Effect, answer Answer) error {
	if !answer.Own || !refusal(answer.Status) {
		return effect.Doubt()
	}
	known := answer.Kind != nil
	switch effect {
	case EffectMerge:
		switch answer.Status {
		case 401, 403, 404, 409, 412:
			known = true
		case 400: // two refusals that differ only by their text
		default:
			known = false
		}
	case EffectOnce:
		known = known || answer.Status == 400
	default:
		known = true
	}
	if known {
		return ErrRefused
	}
	return effect.Doubt()
}

// refusal reports a status that says that nothing was done. The server itself may
// have given up after several tries of which one counted, when it says that it is
// busy.
func refusal(status int) bool {
	switch status {
	case 408, 423, 425, 429:
		return false
	}
	return status/100 == 4
}

// KindOf is what a refusal is about by its status alone, on every server. It is nil
// where the status does not say it.
func KindOf(status int) error {
	switch status {
	case 401:
		return ErrUnauthorized
	case 403:
		return ErrForbidden
	case 404:
		return ErrNotFound
	case 409:
		return ErrConflict
	case 410:
		return ErrGone
	}
	return nil
}
