package pebblestore

import (
	"hash/maphash"
	"sync"

	"holdfast.dev/gateway/internal/ledger"
)

const (
	// stripeCount bounds what is kept per scope, however many scopes there are. Two
	// scopes of one stripe wait for each other, for the microseconds a step takes to
	// be made and not for the fsync, so 256 stripes serve 10,000 busy scopes.
	stripeCount = 256

	// stripeGroups is how many groups of a stripe may be on their way to the disk.
	// While one is written the next waits in the log, so that the disk never does; of
	// a disk that hangs no more goroutines than these are held.
	stripeGroups = 4

	// tailsPerStripe bounds the row sequences remembered in one stripe.
	tailsPerStripe = 64
)

// stripe puts the calls of the scopes that fall on it into an order. Whoever leads
// it makes what waits, group by group (see group), and is alone in that.
type stripe struct {
	lead func() // on one of the store's goroutines

	mu          sync.Mutex // of the four that follow; never held for long
	first, rear *task      // of those that wait, in the order in which they came
	led         bool       // somebody leads
	groups      int        // on their way to the disk

	// What the next group needs. It belongs to who leads.
	last   *commit // the newest that was written under this stripe
	tails  map[ledger.Scope]uint64
	nonces nonces
}

func (st *stripe) init(lead func()) {
	st.lead = lead
	st.tails = map[ledger.Scope]uint64{}
	st.nonces.init()
}

// seed is drawn for each process, so that nobody can choose tenant ids that all
// fall on one stripe. Scopes are hashes already, but of ids that a host picks.
func (s *Store) stripe(scope ledger.Scope) *stripe {
	return &s.stripes[maphash.Comparable(s.seed, scope)%stripeCount]
}

// enter has a task wait for its turn, and says whether somebody is to begin to lead.
func (st *stripe) enter(t *task) (lead bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.first == nil {
		st.first = t
	} else {
		st.rear.behind = t
	}
	st.rear = t
	return st.mayLead()
}

// next is the task whose turn it is; nil: none waits.
func (st *stripe) next() *task {
	st.mu.Lock()
	defer st.mu.Unlock()
	t := st.first
	if t == nil {
		return nil
	}
	if st.first, t.behind = t.behind, nil; st.first == nil {
		st.rear = nil // a task holds all that it was given and found
	}
	return t
}

// leave takes a task out, unless it was begun.
func (st *stripe) leave(t *task) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	var before *task
	for at := st.first; at != nil; before, at = at, at.behind {
		if at != t {
			continue
		}
		if before == nil {
			st.first = t.behind
		} else {
			before.behind = t.behind
		}
		if st.rear == t {
			st.rear = before
		}
		return true
	}
	return false
}

// give ends the lead of who has made a group, and says whether another is to begin to.
func (st *stripe) give() (lead bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.groups++
	st.led = false
	return st.mayLead()
}

// arrived counts a group as on the disk, and says whether its maker is to lead again.
func (st *stripe) arrived() (lead bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.groups--
	return st.mayLead()
}

// mayLead takes the lead if there is something to make and nobody does.
func (st *stripe) mayLead() bool {
	if st.led || st.groups == stripeGroups || st.first == nil {
		return false
	}
	st.led = true
	return true
}

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
