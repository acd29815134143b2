package dedupe

import (
	"context"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
)

// Verdict is what a claim came to.
type Verdict string

// Verdicts of a claim. Only Acquired allows a send, and only once.
const (
	Acquired     Verdict = "acquired"
	Replayed     Verdict = "replayed"      // Record and Answer are the stored ones
	Busy         Verdict = "in_flight"     // an identical write is running
	OnHold       Verdict = "held"          // its outcome is unknown; not sent again
	KeyReused    Verdict = "key_reused"    // the key belongs to another request
	Twin         Verdict = "twin"          // an identical write under another key is unsettled
	WouldAcquire Verdict = "would_acquire" // nothing was written
)

// Draft is what a new action is made of; the rules add the times and the state.
type Draft struct {
	ConnectionID, Connection, Action string
	Connector                        string
	ConnectorSum                     [32]byte
	Marker, VendorKey                string
	// VendorKeyLife is how long the vendor is documented to remember VendorKey.
	VendorKeyLife time.Duration
	Timeout       time.Duration // of the whole exchange
	Window        time.Duration // of replays, from the claim
	Request       []byte        // sealed; kept until the write is settled
	// CheckAfter is how long after the claim the gateway may look for itself,
	// should the write be held; 0: it never does.
	CheckAfter time.Duration
}

// Claim asks for an identity.
type Claim struct {
	Scope       ledger.Scope
	Identity    identity.Identity
	Fingerprint identity.Fingerprint
	Source      identity.Source
	KeyID       string
	RequestID   string

	// ID and Owner are the new action's, should the claim acquire.
	ID    ActionID
	Owner Owner
	// Draft makes the new action's content. It is called when the claim would
	// acquire, perhaps more than once, so it must be pure. vendorKey is "" or
	// the key of a write that an operator found not done and whose vendor still
	// remembers it: sending under the same key again is safer than under a new one.
	Draft func(at time.Time, vendorKey string) (Draft, error)
	// Guard lists conditions outside this package's rules that an acquisition
	// depends on; if one fails, ErrGuard.
	Guard []ledger.Expect
	// Basis lists conditions that the request was read under: if one fails, it may
	// mean something else by now, and whatever the verdict would be it is ErrGuard.
	Basis []ledger.Expect

	// MayAcquire false stops short of acquiring: the verdict is WouldAcquire and
	// nothing is written. What already exists is answered all the same.
	MayAcquire bool
	// DryRun writes nothing at all, whatever the verdict.
	DryRun         bool
	RetryRefused   bool // a stored refusal does not stop the claim
	AllowDuplicate bool // an unsettled twin does not stop the claim

	// Tally, if set, names a counter that an acquisition adds to in its own step.
	Tally func(at time.Time) ledger.Add

	Scribe Scribe
}

// Claimed is the result of a claim.
type Claimed struct {
	Verdict Verdict
	Now     time.Time // store time of the verdict
	Record  *Record   // the action that answers; nil for WouldAcquire and KeyReused of a bare dry run
	Answer  []byte    // of a Replayed success
	Replays int64     // this one included
	Handle  *Handle   // of an Acquired
	Tally   int64     // of an Acquired: the counter with it, if there is one
}

// Handle is the owner's grip on an acquired action: what it renews and settles
// with. It is not safe for concurrent use.
type Handle struct {
	Scope  ledger.Scope
	Record *Record

	version ledger.Version // of the action's record
	twins   twinList       // as the owner last saw it
}

// view is what a claim decides on.
type view struct {
	now        time.Time
	binding    ledger.Version
	bound      *stored // nil: no binding
	answer     []byte
	twins      twinList
	liveTwins  []stored // listed, unsettled and not over
	guardHolds bool
	basisHolds bool
}

// decision is a verdict and the step that makes it true. A nil step writes
// nothing.
type decision struct {
	claimed  Claimed
	step     *ledger.Step
	acquires bool
}

// Claim decides, in one atomic step, what becomes of a request for an
// identity, in the order of the design: binding, fingerprint, in flight, held
// or settled, twins, permission, acquisition.
//
// The first step assumes the common case, an identity never seen: one round
// trip to the store. If the assumption is wrong the store returns what it
// holds and the rules decide on that.
func (c *Claims) Claim(ctx context.Context, cl Claim) (Claimed, error) {
	if cl.DryRun {
		return c.dryRun(ctx, cl)
	}
	v := view{now: milli(c.store.Now()), guardHolds: true, basisHolds: true}
	if !cl.MayAcquire {
		snap, err := c.store.Read(ctx, cl.Scope, cl.fetch()...)
		if err != nil {
			return Claimed{}, fmt.Errorf("read identity: %w", err)
		}
		if v, err = c.look(snap, &cl); err != nil {
			return Claimed{}, err
		}
	}
	for range maxDecisions {
		d, err := c.decide(&cl, v)
		if err != nil || d.step == nil {
			return d.claimed, err
		}
		res, err := c.store.Apply(ctx, cl.Scope, *d.step)
		switch {
		case err != nil && d.acquires:
			return Claimed{}, &UncertainError{
				Abandon: Abandon{Scope: cl.Scope, ID: cl.ID, Owner: cl.Owner, Nonce: d.step.Nonce, Scribe: cl.Scribe},
				Err:     err,
			}
		case err != nil:
			return Claimed{}, fmt.Errorf("claim identity: %w", err)
		case res.Voided:
			return Claimed{}, errContended
		case res.Applied:
			if d.claimed.Verdict == Replayed {
				c.recent.put(recentKey{cl.Scope, cl.Identity}, settledView{binding: v.binding, bound: *v.bound, answer: v.answer})
				if len(res.Counters) == 1 {
					d.claimed.Replays = res.Counters[0]
				}
			}
			if d.acquires && len(res.Counters) == 1 {
				d.claimed.Tally = res.Counters[0]
			}
			return d.claimed, nil
		}
		if v, err = c.look(res.Snapshot, &cl); err != nil {
			return Claimed{}, err
		}
	}
	return Claimed{}, errContended
}

func (c *Claims) dryRun(ctx context.Context, cl Claim) (Claimed, error) {
	snap, err := c.store.Read(ctx, cl.Scope, cl.fetch()...)
	if err != nil {
		return Claimed{}, fmt.Errorf("read identity: %w", err)
	}
	v, err := c.look(snap, &cl)
	if err != nil {
		return Claimed{}, err
	}
	d, err := c.decide(&cl, v)
	if d.acquires {
		d.claimed = Claimed{Verdict: WouldAcquire, Now: v.now}
	}
	d.claimed.Handle = nil
	return d.claimed, err
}

func (cl *Claim) fetch() []ledger.Fetch {
	fetch := make([]ledger.Fetch, 0, 2+len(cl.Guard)+len(cl.Basis))
	fetch = append(fetch,
		ledger.Fetch{Key: bindingKey(cl.Identity), Follow: []ledger.Kind{ledger.Action, ledger.Answer}},
		ledger.Fetch{Key: twinsKey(cl.Fingerprint), Follow: []ledger.Kind{ledger.Action}},
	)
	for _, g := range cl.Guard {
		fetch = append(fetch, ledger.Fetch{Key: g.Key})
	}
	for _, b := range cl.Basis {
		fetch = append(fetch, ledger.Fetch{Key: b.Key})
	}
	return fetch
}

// look turns what the store returned into what the rules decide on.
func (c *Claims) look(snap ledger.Snapshot, cl *Claim) (view, error) {
	v := view{now: snap.Now, guardHolds: holds(snap, cl.Guard), basisHolds: holds(snap, cl.Basis)}
	if b, ok := snap.Get(bindingKey(cl.Identity)); ok {
		v.binding = b.Version
		ids, err := splitIDs(b.Data)
		if err != nil || len(ids) != 1 {
			return v, ErrUnreadable
		}
		rec, ok, err := recordIn(snap, ids[0])
		if err != nil {
			return v, err
		}
		if !ok {
			// A record outlives every binding to it (historyEnd), so this one was
			// lost, and with it whether the write was made.
			return v, ErrUnreadable
		}
		v.bound = &rec
		if v.answer, err = answerIn(snap, rec.ID); err != nil {
			return v, err
		}
	}
	twins, err := twinsIn(snap, cl.Fingerprint)
	if err != nil {
		return v, err
	}
	v.twins = twins
	for _, id := range twins.ids {
		rec, ok, err := recordIn(snap, id)
		if err != nil {
			return v, err
		}
		if ok && rec.State.Unsettled() && !rec.over(v.now) {
			v.liveTwins = append(v.liveTwins, rec)
		}
	}
	return v, nil
}
