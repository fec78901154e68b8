package txn

import (
	"errors"
	"testing"
)

func TestClassOf(t *testing.T) {
	t.Parallel()
	own := func(kind error, status ...int) []Answer {
		var all []Answer
		for _, one := range status {
			all = append(all, Answer{Status: one, Own: true, Kind: kind})
		}
		return all
	}
	var foreign []Answer
	for _, status := range []int{400, 401, 403, 404, 409, 410, 412, 413, 422, 500} {
		foreign = append(foreign, Answer{Status: status}, Answer{Status: status, Kind: ErrNotFound})
	}
	var rows []string
	for _, c := range []struct {
		row                     string
		answers                 []Answer
		repeatable, once, merge error
	}{
		{"an answer that is not in the server's own form, whatever its status", foreign, ErrRetryable, ErrUnknownOutcome, ErrUnknownOutcome},
		{"2xx that is not what was asked for, 3xx", own(nil, 200, 201, 204, 301, 307), ErrRetryable, ErrUnknownOutcome, ErrUnknownOutcome},
		{"408, 423, 425, 429, 5xx", own(ErrConflict, 408, 423, 425, 429, 500, 501, 502, 503, 504), ErrRetryable, ErrUnknownOutcome, ErrUnknownOutcome},
		{"400 whose meaning is known", append(own(ErrDirtyBranch, 400), own(ErrNoChanges, 400)...), ErrRefused, ErrRefused, ErrRefused},
		{"400, otherwise", own(nil, 400), ErrRefused, ErrRefused, ErrUnknownOutcome},
		{"401, 403, 404, 409, 412", append(append(own(ErrUnauthorized, 401), own(ErrForbidden, 403)...), append(append(own(ErrNotFound, 404), own(ErrConflict, 409)...), own(ErrHookRefused, 412)...)...), ErrRefused, ErrRefused, ErrRefused},
		{"another 4xx whose meaning is known", own(ErrGone, 410), ErrRefused, ErrRefused, ErrUnknownOutcome},
		{"another 4xx", own(nil, 405, 413, 415, 422), ErrRefused, ErrUnknownOutcome, ErrUnknownOutcome},
	} {
		rows = append(rows, c.row)
		for _, answer := range c.answers {
			for effect, want := range map[Effect]error{EffectRepeatable: c.repeatable, EffectOnce: c.once, EffectMerge: c.merge} {
				if got := ClassOf(effect, answer); !errors.Is(got, want) {
					t.Errorf("%s: ClassOf(%d, %+v) = %v, want %v", c.row, effect, answer, got, want)
				}
			}
		}
	}
	sameRows(t, "answers", rows)
}
