// Package dedupe holds the rules of a write's life: who may claim an identity,
// what a repeat gets, when a lease that lapsed turns into doubt, and who may
// settle that doubt.
//
// The rules live once, here, as plain functions from what the store holds to
// one [ledger.Step]. Every transition works the same way: decide on a
// snapshot, then apply a step that takes effect only if the snapshot still
// holds; if it does not, the store hands back the present state and the rule
// decides again. The driver below never sees a rule, so two drivers cannot
// disagree on one, and the audit row of a transition rides in the same step.
//
// The package leaves to its neighbours: how an identity is computed (identity),
// how bytes are kept (ledger), what is planned, sent and judged (actions), and
// what an audit row looks like (the caller's [Scribe]).
package dedupe

import (
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Event names an audit row of a write's life, in the words of the contract.
type Event string

// Events this package writes. Their meaning: claimed, a new action owns the
// identity; lease_lost, its owner went silent and the write is held; the others
// say what a settle, a repeat, a check or an operator did; recovered is a
// resend that settled a write whose owner was lost.
const (
	EventClaimed     Event = "claimed"
	EventSucceeded   Event = "succeeded"
	EventRefused     Event = "refused"
	EventHeld        Event = "held"
	EventNotSent     Event = "not_sent"
	EventReleased    Event = "released"
	EventReplayed    Event = "replayed"
	EventInFlight    Event = "in_flight"
	EventKeyReused   Event = "key_reused"
	EventTwinRefused Event = "twin_refused"
	EventLeaseLost   Event = "lease_lost"
	EventLateAnswer  Event = "late_answer"
	EventHeldRepeat  Event = "held_repeat"
	EventLapsed      Event = "lapsed"
	EventNotDone     Event = "not_done"
	EventResolved    Event = "resolved"
	EventChecked     Event = "checked"
	EventRecovered   Event = "recovered"
)

// Transition is what a Scribe is told: the event, the store time it is dated
// with, and the record as it stands after the event.
type Transition struct {
	Event  Event
	At     time.Time
	Record *Record
	Probe  *Probe // of EventChecked: what one step of the check showed
}

// Scribe encodes the audit row of a transition. It is called while a step is
// being built, possibly several times for a step that is decided again, so it
// must be pure. The bytes are opaque to this package.
type Scribe func(Transition) []byte

// HoldAtLeast is the least time, from its claim, that a held write stays held.
const HoldAtLeast = 24 * time.Hour

// Config is what Claims needs. All durations are on the store's clock.
type Config struct {
	Store ledger.Store
	// Lease is how long a claim stands without a renewal.
	Lease time.Duration
	// History is how long an ended action stays listed; its answer never
	// outlives its window.
	History time.Duration
}

// Claims applies the rules over one store. It may be used from many goroutines and
// many processes at once: what it remembers saves a read and decides nothing.
type Claims struct {
	store   ledger.Store
	lease   time.Duration
	history time.Duration
	recent  recent
}

// New returns the rules over a store.
func New(c Config) *Claims {
	return &Claims{store: c.Store, lease: c.Lease, history: c.History}
}

// Lease returns the length of a lease.
func (c *Claims) Lease() time.Duration { return c.lease }

// Now estimates the store's clock.
func (c *Claims) Now() time.Time { return c.store.Now() }
