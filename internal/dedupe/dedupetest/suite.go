// Package dedupetest is the conformance suite of the rules in package dedupe
// over a store: one named case for each cell of the claim order and of the other
// transitions. Every driver runs all of it; there are no opt-outs.
package dedupetest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
)

// Times of the suite's writes, on the store's clock.
const (
	lease   = 30 * time.Second
	window  = 24 * time.Hour
	timeout = 20 * time.Second
	history = 30 * 24 * time.Hour
	// tick is more than a client's estimate of the clock can be off by.
	tick = 20 * time.Millisecond
)

// Run runs every case on stores that open makes.
func Run(t *testing.T, open func(t *testing.T) ledgertest.Harness) {
	groups := []struct {
		name  string
		cases []testCase
	}{
		{"claim", claimCases()},
		{"replay", replayCases()},
		{"dry run", dryRunCases()},
		{"twins", twinCases()},
		{"settle", settleCases()},
		{"renew", renewCases()},
		{"resolve", resolveCases()},
		{"check", checkCases()},
		{"sweep", sweepCases()},
		{"damage", damageCases()},
		{"abandon", abandonCases()},
		{"contention", contentionCases()},
		{"answers", answerCases()},
		{"isolation", isolationCases()},
		{"failures", failureCases()},
		{"list", listCases()},
		{"erase", eraseCases()},
		{"model", modelCases()},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) { c.run(newFixture(t, open(t))) })
			}
		})
	}
}

type testCase struct {
	name string
	run  func(f *fixture)
}

// fixture is one scope of a store, the rules over it, and short words for what
// the cases do.
type fixture struct {
	*testing.T
	ledgertest.Harness
	claims *dedupe.Claims
	scope  ledger.Scope
}

func newFixture(t *testing.T, h ledgertest.Harness) *fixture {
	f := &fixture{T: t, Harness: h, scope: ledger.ScopeOf(rand.Text())}
	f.claims = f.over(h.Store)
	return f
}

// over returns the rules over another store (a wrapper, a second client).
func (f *fixture) over(s ledger.Store) *dedupe.Claims {
	return dedupe.New(dedupe.Config{Store: s, Lease: lease, History: history})
}

// scribe writes rows the suite can read back: "event state".
func scribe(t dedupe.Transition) []byte {
	state := "-"
	if t.Record != nil {
		state = t.Record.State.String()
	}
	return fmt.Appendf(nil, "%s %s", t.Event, state)
}

// request is one `do` as the rules see it: a fingerprint and perhaps a key.
type request struct {
	key, body string
}

func (r request) fingerprint() identity.Fingerprint {
	return identity.Fingerprint(sha256.Sum256([]byte("body:" + r.body)))
}

func (r request) identity() identity.Identity {
	if r.key == "" {
		return identity.Identity(r.fingerprint())
	}
	return identity.Identity(sha256.Sum256([]byte("key:" + r.key)))
}

func derived(body string) request       { return request{body: body} }
func supplied(key, body string) request { return request{key: key, body: body} }

type option func(*dedupe.Claim)

func mayNotAcquire(c *dedupe.Claim)  { c.MayAcquire = false }
func dryRun(c *dedupe.Claim)         { c.DryRun = true }
func retryRefused(c *dedupe.Claim)   { c.RetryRefused = true }
func allowDuplicate(c *dedupe.Claim) { c.AllowDuplicate = true }

func withWindow(d time.Duration) option {
	return func(c *dedupe.Claim) {
		inner := c.Draft
		c.Draft = func(at time.Time, key string) (dedupe.Draft, error) {
			dr, err := inner(at, key)
			dr.Window = d
			return dr, err
		}
	}
}

func withVendorKey(key string, life time.Duration) option {
	return func(c *dedupe.Claim) {
		inner := c.Draft
		c.Draft = func(at time.Time, inherited string) (dedupe.Draft, error) {
			dr, err := inner(at, inherited)
			dr.VendorKey, dr.VendorKeyLife = key, life
			if inherited != "" {
				dr.VendorKey = inherited
			}
			return dr, err
		}
	}
}

func (f *fixture) newClaim(r request, opts ...option) dedupe.Claim {
	source := identity.Derived
	if r.key != "" {
		source = identity.Supplied
	}
	c := dedupe.Claim{
		Scope: f.scope, Identity: r.identity(), Fingerprint: r.fingerprint(), Source: source,
		KeyID: "key_1", RequestID: "req_1",
		ID: dedupe.NewActionID(f.Store.Now()), Owner: dedupe.NewOwner(),
		MayAcquire: true, Scribe: scribe,
		Draft: func(time.Time, string) (dedupe.Draft, error) {
			return dedupe.Draft{
				ConnectionID: "conn_1", Connection: "billing", Action: "create_invoice",
				Connector: "sandbox@1.0.0", Marker: "m", Timeout: timeout, Window: window, Request: []byte("sealed"),
			}, nil
		},
	}
	for _, o := range opts {
		o(&c)
	}
	return c
}

func (f *fixture) claim(r request, opts ...option) dedupe.Claimed {
	f.Helper()
	got, err := f.claims.Claim(f.Context(), f.newClaim(r, opts...))
	require.NoError(f, err)
	return got
}

// acquire claims and insists on getting it.
func (f *fixture) acquire(r request, opts ...option) *dedupe.Handle {
	f.Helper()
	got := f.claim(r, opts...)
	require.Equal(f, dedupe.Acquired, got.Verdict)
	require.NotNil(f, got.Handle)
	require.Equal(f, dedupe.InFlight, got.Record.State)
	return got.Handle
}

func (f *fixture) wants(v dedupe.Verdict, r request, opts ...option) dedupe.Claimed {
	f.Helper()
	got := f.claim(r, opts...)
	require.Equal(f, v, got.Verdict)
	require.Equal(f, v == dedupe.Acquired, got.Handle != nil, "only an acquisition has a handle")
	return got
}

func settlement(state dedupe.State, answer string) dedupe.Settlement {
	st := dedupe.Settlement{State: state, Scribe: scribe, Outcome: dedupe.Outcome{Phase: "answered", VendorStatus: 200}}
	if state == dedupe.Succeeded {
		st.Answer = []byte(answer)
	}
	return st
}

func (f *fixture) settle(h *dedupe.Handle, state dedupe.State, answer string) *dedupe.Record {
	f.Helper()
	rec, err := f.claims.Settle(f.Context(), h, settlement(state, answer))
	require.NoError(f, err)
	require.Equal(f, state, rec.State)
	return rec
}

// done acquires and settles in one go.
func (f *fixture) done(r request, state dedupe.State, answer string, opts ...option) *dedupe.Record {
	f.Helper()
	return f.settle(f.acquire(r, opts...), state, answer)
}

// lost acquires a write whose owner is never heard of again, until it is held.
func (f *fixture) lost(r request, opts ...option) *dedupe.Handle {
	f.Helper()
	h := f.acquire(r, opts...)
	f.Advance(lease + tick)
	f.sweep()
	require.Equal(f, dedupe.Held, f.get(h).Record.State)
	return h
}

func (f *fixture) sweep() int {
	f.Helper()
	_, err := f.Store.Read(f.Context(), f.scope) // let the client's clock catch up
	require.NoError(f, err)
	n, err := f.claims.Sweep(f.Context(), f.scope, scribe)
	require.NoError(f, err)
	return n.Held + n.Lapsed
}

func (f *fixture) get(h *dedupe.Handle) dedupe.Found {
	f.Helper()
	found, err := f.claims.Get(f.Context(), f.scope, h.Record.ID)
	require.NoError(f, err)
	return found
}

func (f *fixture) resolve(h *dedupe.Handle, state dedupe.State, answer string) (*dedupe.Record, error) {
	return f.resolveID(h.Record.ID, state, answer)
}

func (f *fixture) resolveID(id dedupe.ActionID, state dedupe.State, answer string) (*dedupe.Record, error) {
	return f.claims.Resolve(f.Context(), f.scope, id, dedupe.Resolution{
		State: state, Answer: []byte(answer), Note: "looked", By: "key_2", Scribe: scribe,
	})
}

// rows returns all rows of the scope as the scribe wrote them.
func (f *fixture) rows() []string {
	f.Helper()
	rows, err := f.Store.Rows(f.Context(), f.scope, ledger.RowRange{Limit: 1000})
	require.NoError(f, err)
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = string(r.Data)
	}
	return out
}

func (f *fixture) entries(index ledger.Index) int {
	f.Helper()
	es, err := f.Store.Entries(f.Context(), f.scope, ledger.EntryRange{Index: index, Limit: 1000})
	require.NoError(f, err)
	return len(es)
}

// index puts entries that no rule puts there.
func (f *fixture) index(entries ...ledger.Entry) {
	f.Helper()
	res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{Nonce: ledger.NewNonce(), At: f.storeNow(), Index: entries})
	require.NoError(f, err)
	require.True(f, res.Applied)
}

func entryAt(index ledger.Index, score time.Time, h *dedupe.Handle) ledger.Entry {
	return ledger.Entry{Index: index, Score: score, Member: string(h.Record.ID[:])}
}

func (f *fixture) storeNow() time.Time {
	f.Helper()
	snap, err := f.Store.Read(f.Context(), f.scope)
	require.NoError(f, err)
	return snap.Now
}

// deaf is a store whose next applied step goes unanswered.
type deaf struct {
	ledger.Store
	lose   atomic.Bool // apply, then lose the reply
	refuse atomic.Bool // do not apply yet; keep the step for later
	kept   chan ledger.Step
}

func newDeaf(s ledger.Store) *deaf { return &deaf{Store: s, kept: make(chan ledger.Step, 1)} }

func (d *deaf) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if d.refuse.CompareAndSwap(true, false) {
		d.kept <- step
		return ledger.Result{}, ledger.ErrUnavailable
	}
	res, err := d.Store.Apply(ctx, scope, step)
	if err == nil && res.Applied && d.lose.CompareAndSwap(true, false) {
		return ledger.Result{}, ledger.ErrUnavailable
	}
	return res, err
}
