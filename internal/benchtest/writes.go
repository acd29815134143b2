package benchtest

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
)

// shape is what one write is made of. Its zero fields mean the shape of the
// issue's table: a body of 300 bytes, an answer of 300, a window of a day, one
// tenant, rows on.
type shape struct {
	body, answer int
	window       time.Duration
	history      time.Duration
	tenants      int
	name         string // of the tenants
	json         bool   // answers are JSON that compresses as such text does, not noise
}

func (s shape) filled() shape {
	def := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	def(&s.body, 300)
	def(&s.answer, 300)
	def(&s.tenants, 1)
	if s.name == "" {
		s.name = "tenant"
	}
	if s.window == 0 {
		s.window = 24 * time.Hour
	}
	if s.history == 0 {
		s.history = 30 * 24 * time.Hour
	}
	return s
}

// writes makes claims and settles as the one path of a write does, over a store
// and without the path: the same record, sealed request, guards, counter and
// rows, and none of what comes before (HTTP, planning, sealing) or between (the
// vendor). Its methods may be called from many goroutines.
type writes struct {
	shape   shape
	store   ledger.Store
	claims  *dedupe.Claims
	tenants []tenant
	request []byte
	answers [][]byte
}

type tenant struct {
	name   string
	scope  ledger.Scope
	guards []ledger.Expect
}

// sealedOverhead is by how much the sealed request of an action is longer than
// four thirds of its body, which it holds in base64, and its body, which it
// holds as the agent sent it: names, headers and the seal.
const sealedOverhead = 520

// newWrites puts what the guards of each tenant stand for, and returns writes.
func newWrites(ctx context.Context, store ledger.Store, sh shape) (*writes, error) {
	sh = sh.filled()
	w := &writes{
		shape:   sh,
		store:   store,
		request: noise(sealedOverhead + sh.body*8/3),
	}
	w.claims = w.rules(store)
	for i := range 64 {
		if sh.json {
			w.answers = append(w.answers, invoices(sh.answer, i))
		} else {
			w.answers = append(w.answers, noise(sh.answer))
		}
	}
	w.tenants = make([]tenant, sh.tenants)
	var next atomic.Int64
	return w, times(ctx, sh.tenants, func(ctx context.Context) (err error) {
		i := next.Add(1) - 1
		w.tenants[i], err = w.create(ctx, fmt.Sprintf("%s-%05d", sh.name, i))
		return err
	})
}

// create puts what the guards of a tenant's claims stand for.
func (w *writes) create(ctx context.Context, name string) (tenant, error) {
	t := tenant{name: name, scope: ledger.ScopeOf(name)}
	for range 10 { // a step can come too late for its own time on a busy machine
		step := ledger.Step{Nonce: ledger.NewNonce(), At: w.store.Now()}
		t.guards = nil
		for _, k := range []ledger.Key{{Kind: ledger.Tenant}, {Kind: ledger.APIKey, ID: "key_0123456789"}, {Kind: ledger.Connection, ID: "billing"}} {
			step.Put = append(step.Put, ledger.Put{Key: k, Data: noise(200)})
			t.guards = append(t.guards, ledger.Expect{Key: k, Version: step.Nonce.Version()})
		}
		res, err := w.store.Apply(ctx, t.scope, step)
		if err != nil || res.Applied {
			return t, err
		}
	}
	return t, errors.New("create tenant: not applied")
}

func (w *writes) rules(store ledger.Store) *dedupe.Claims {
	return dedupe.New(dedupe.Config{Store: store, Lease: 30 * time.Second, History: w.shape.history})
}

// write is one claim on its way to its settle.
type write struct {
	t      *tenant
	scribe dedupe.Scribe
	handle *dedupe.Handle
}

// claim claims a new identity of some tenant.
func (w *writes) claim(ctx context.Context) (write, error) {
	t := &w.tenants[rand.IntN(len(w.tenants))]
	fresh := write{t: t, scribe: w.scribe(t)}
	own := sha256.Sum256(binary.BigEndian.AppendUint64(nil, rand.Uint64()))
	got, err := w.claims.Claim(ctx, dedupe.Claim{
		Scope: t.scope, Identity: own, Fingerprint: own, Source: identity.Derived,
		KeyID: "key_0123456789", RequestID: "req_01JZ0000000000000000000000",
		ID: dedupe.NewActionID(w.store.Now()), Owner: dedupe.NewOwner(),
		Guard: t.guards, MayAcquire: true, Tally: limits.Tally, Scribe: fresh.scribe,
		Draft: func(time.Time, string) (dedupe.Draft, error) {
			return dedupe.Draft{
				ConnectionID: "con_01JZ0000000000000000000000", Connection: "billing", Action: "create_invoice",
				Connector: "sandbox@1.0.0", ConnectorSum: own, Marker: "0123456789abcdef0123456789abcdef",
				VendorKey: "0123456789abcdef0123456789abcdef", VendorKeyLife: 24 * time.Hour,
				Timeout: 20 * time.Second, Window: w.shape.window, Request: w.request,
			}, nil
		},
	})
	if err == nil && got.Verdict != dedupe.Acquired {
		err = fmt.Errorf("claim of a new identity: %s", got.Verdict)
	}
	fresh.handle = got.Handle
	return fresh, err
}

// settle ends a write with an answer.
func (w *writes) settle(ctx context.Context, x write) error {
	now := w.store.Now()
	_, err := w.claims.Settle(ctx, x.handle, dedupe.Settlement{
		State:   dedupe.Succeeded,
		Outcome: dedupe.Outcome{Phase: "answered", VendorStatus: 200},
		Attempt: &dedupe.Attempt{At: now, Duration: 3 * time.Millisecond, Phase: "answered", Status: 200},
		Answer:  w.answers[rand.IntN(len(w.answers))],
		Scribe:  x.scribe,
	})
	return err
}

// pair is a claim and its settle.
func (w *writes) pair(ctx context.Context) error {
	x, err := w.claim(ctx)
	if err != nil {
		return err
	}
	return w.settle(ctx, x)
}

// scribe makes the rows that the one path makes.
func (w *writes) scribe(t *tenant) dedupe.Scribe {
	base := audit.Caller{
		Tenant: t.name, Actor: audit.Actor{Kind: audit.KindKey, KeyID: "key_0123456789"},
		Front: "rest", RequestID: "req_01JZ0000000000000000000000",
	}.Row("")
	return func(tr dedupe.Transition) []byte {
		row, r := base, tr.Record
		row.Event, row.At = audit.Event(tr.Event), tr.At
		row.ActionID, row.Connection, row.Action = r.ID.String(), r.Connection, r.Action
		row.Identity, row.KeySource = r.Identity.PublicID(), string(r.Source)
		row.Outcome, row.VendorStatus = r.State.String(), r.Outcome.VendorStatus
		if n := len(r.Attempts); n > 0 {
			row.DurationMS = r.Attempts[n-1].Duration.Milliseconds()
		}
		return row.Encode()
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = crand.Read(b)
	return b
}
