package credential

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"
)

// Shown is a key id and its secret at one moment, as a server is shown them.
type Shown struct{ Key, Secret Value }

// same compares the texts, wherever they come from.
func (s Shown) same(other Shown) bool {
	return s.Key.Reveal() == other.Key.Reveal() && s.Secret.Reveal() == other.Secret.Reveal()
}

// Pair is a key id and its secret over the life of a process. It is safe for
// concurrent use.
type Pair struct {
	renewed func(Shown)

	mutex   sync.Mutex
	current Shown
	// reading is the reading of the files that is under way. It begins under the
	// mutex, and ends under it.
	reading singleflight.Group
}

// NewPair begins with these values. renewed is told of each pair that is taken up
// later, before anybody sends it; nil for nobody.
func NewPair(key, secret Value, renewed func(Shown)) *Pair {
	if renewed == nil {
		renewed = func(Shown) {}
	}
	return &Pair{renewed: renewed, current: Shown{key, secret}}
}

// Current is the pair to send now.
func (p *Pair) Current() Shown {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.current
}

// Renew is for whoever was refused with this pair: it gives the pair to try once
// more, and false when there is none other than the one refused. When another
// caller has already taken up a new pair, that is the one; else the files are
// read, once for all who wait. The error says why they could not be, naming the
// variable, or is the context's.
func (p *Pair) Renew(ctx context.Context, refused Shown) (Shown, bool, error) {
	p.mutex.Lock()
	if now := p.current; !now.same(refused) {
		p.mutex.Unlock()
		return now, true, nil
	}
	if refused.Key.origin == nil && refused.Secret.origin == nil {
		p.mutex.Unlock()
		return refused, false, nil
	}
	// Not this caller's own time: a file system that hangs must not hold it
	// beyond its context, and its leaving must not fail the others.
	reading := p.reading.DoChan("", func() (any, error) { return nil, p.read(refused) })
	p.mutex.Unlock()
	select {
	case read := <-reading:
		now := p.Current()
		return now, !now.same(refused), read.Err
	case <-ctx.Done():
		return refused, false, ctx.Err()
	}
}

// read takes up what the files hold. If one of them cannot be read, neither half
// changes.
func (p *Pair) read(before Shown) error {
	key, keyErr := before.Key.again()
	secret, secretErr := before.Secret.again()
	err := cmp.Or(keyErr, secretErr)
	if keyErr != nil && secretErr != nil {
		err = fmt.Errorf("%w, and %w", keyErr, secretErr)
	}
	now := Shown{key, secret}
	taken := err == nil && !now.same(before)
	if taken {
		p.renewed(now)
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if taken {
		p.current = now
	}
	p.reading.Forget("")
	return err
}
