package pebblestore

import (
	"context"
	"hash/maphash"

	"holdfast.dev/gateway/internal/ledger"
)

// stripeCount bounds what is kept per scope, however many scopes there are. Two
// scopes of one stripe wait for each other, for the microseconds a step takes to
// be made and not for the fsync, so 256 stripes serve 10,000 busy scopes.
const stripeCount = 256

// tailsPerStripe bounds the row sequences remembered in one stripe.
const tailsPerStripe = 64

// stripe serialises the steps of the scopes that fall on it and remembers what
// the next of them needs.
type stripe struct {
	held   chan struct{} // a lock that can be waited for with a context
	last   *commit       // the newest batch written under this stripe
	tails  map[ledger.Scope]uint64
	nonces nonces
}

func (st *stripe) init() {
	st.held = make(chan struct{}, 1)
	st.tails = map[ledger.Scope]uint64{}
	st.nonces.init()
}

// seed is drawn for each process, so that nobody can choose tenant ids that all
// fall on one stripe. Scopes are hashes already, but of ids that a host picks.
func (s *Store) stripe(scope ledger.Scope) *stripe {
	return &s.stripes[maphash.Comparable(s.seed, scope)%stripeCount]
}

func (st *stripe) lock(ctx context.Context, f *failure) error {
	select {
	case st.held <- struct{}{}:
		if err := f.err(); err != nil {
			st.unlock()
			return err
		}
		return nil
	case <-ctx.Done():
		return unavailable(ctx.Err())
	case <-f.ch:
		return f.err()
	}
}

func (st *stripe) unlock() { <-st.held }

// remember keeps the sequence of a scope's newest row. Which one makes room does
// not matter: a forgotten sequence is read from disk.
func (st *stripe) remember(scope ledger.Scope, seq uint64) {
	if _, known := st.tails[scope]; !known && len(st.tails) >= tailsPerStripe {
		for victim := range st.tails {
			delete(st.tails, victim)
			break
		}
	}
	st.tails[scope] = seq
}

// commit is a batch on its way to disk. Everything written under the stripe
// before it is durable when it is, because the log is synced in order; the
// engine closes (and syncs) one log file before it begins the next.
type commit struct {
	done chan struct{} // closed when durable; never, if the store failed
}

// durable waits until everything written under the stripe up to c is on disk.
func (s *Store) durable(c *commit) error {
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-s.failure.ch:
		return s.failure.err()
	}
}
