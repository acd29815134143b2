package actions_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/wire"
)

const (
	settle = 2 * time.Minute
	within = 23 * time.Hour
)

// checks gives the fixture's action check steps, and a vendor key that a vendor
// is documented to remember for a day.
func (f *fixture) checks(rules ...connectors.CheckRule) {
	spec := f.fake.SpecValue.Actions["create_thing"]
	spec.Checks = rules
	spec.Idempotency = &connectors.Idempotency{In: "header", Name: "Idempotency-Key", Format: connectors.KeyHex, MaxLen: 64,
		Retention: 24 * time.Hour, Documented: true}
	f.fake.SpecValue.Actions["create_thing"] = spec
	f.fake.CheckFunc = func(context.Context, connectors.Op) ([]connectors.CheckStep, error) {
		var steps []connectors.CheckStep
		for _, r := range rules {
			step := connectors.CheckStep{CheckRule: r}
			if r.Kind == connectors.Lookup {
				step.Request = connectors.Request{Method: "GET", URL: "https://vendor.example/things"}
			}
			steps = append(steps, step)
		}
		return steps, nil
	}
}

func resendRule() connectors.CheckRule {
	return connectors.CheckRule{Kind: connectors.Resend, Within: within}
}

func lookupRule(absent connectors.Absent) connectors.CheckRule {
	return connectors.CheckRule{Kind: connectors.Lookup, Settle: settle, Absent: absent}
}

// finds makes every look-up find this.
func (f *fixture) finds(found connectors.Found) {
	f.fake.LookupFunc = func(context.Context, connectors.Op, int, connectors.Answer) (connectors.Found, error) {
		return found, nil
	}
}

// held leaves a write in doubt, after which the vendor answers well.
func (f *fixture) held() *dedupe.Record {
	f.Helper()
	f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonCut})
	f.fails(actions.OutcomeUnknown, `{}`)
	f.vendor.says(answered(201, "application/json", `{"ok":true}`))
	return f.only()
}

func (f *fixture) operator() tenants.Principal {
	return tenants.Principal{Tenant: "acme", TenantID: "ten_1", Scope: scope, KeyID: "key_2",
		Scopes: []tenants.KeyScope{tenants.ScopeResolve}}
}

func (f *fixture) check(rec *dedupe.Record) actions.CheckResult {
	f.Helper()
	got, err := f.svc.Check(f.Context(), f.operator(), rec.ID.String(), "req_2", "rest")
	require.NoError(f, err)
	require.Equal(f, f.get(rec.ID).State, got.View.Record.State)
	return got
}

func (f *fixture) verdict(want string, rec *dedupe.Record) actions.CheckResult {
	f.Helper()
	got := f.check(rec)
	require.Equal(f, want, got.Verdict, got.Detail)
	require.NotEmpty(f, got.Detail)
	return got
}

func (f *fixture) advance(d time.Duration) {
	f.Helper()
	f.clock.advance(d)
	_, err := f.store.Read(f.Context(), scope)
	require.NoError(f, err)
}

// TestAKeptAnswerIsJudgedAgainForFree: a Judge that failed holds the write; once
// it works, nothing has to be asked of the vendor.
func TestAKeptAnswerIsJudgedAgainForFree(t *testing.T) {
	f := newFixture(t)
	f.fake.JudgeFunc = func(context.Context, connectors.Op, connectors.Answer) (connectors.Verdict, error) {
		return connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtConnector}, errBroken
	}
	f.vendor.says(answered(201, "application/json", `{"id":"first"}`))
	f.fails(actions.OutcomeUnknown, `{}`)
	rec := f.only()
	f.verdict("still_unknown", rec)
	f.fake.JudgeFunc = nil
	got := f.verdict("succeeded", rec)
	require.Equal(t, `{"id":"first"}`, string(got.View.Answer.Data))
	require.Equal(t, dedupe.ByCheck, got.View.Record.Evidence)
	require.Equal(t, 1, f.vendor.calls())
	_, err := f.claims.Raw(t.Context(), scope, rec.ID)
	require.ErrorIs(t, err, dedupe.ErrNotFound)
}

// outdated is a sealer after a rotation: everything was sealed under the old key.
type outdated struct{ actions.Sealer }

func (outdated) Outdated([]byte) bool { return true }

// TestWhatIsKeptIsSealedAnew: the request and the answer that could not be
// judged, and both still open where they belong.
func TestWhatIsKeptIsSealedAnew(t *testing.T) {
	var sealer actions.Sealer
	f := newFixture(t, func(_ *fixture, _ *dedupe.Config, c *actions.Config) { sealer = c.Sealer })
	f.fake.JudgeFunc = func(context.Context, connectors.Op, connectors.Answer) (connectors.Verdict, error) {
		return connectors.Verdict{}, errBroken
	}
	f.fails(actions.OutcomeUnknown, `{}`)
	rec := f.only()
	was, err := f.claims.Raw(t.Context(), scope, rec.ID)
	require.NoError(t, err)
	n, err := actions.Reseal(t.Context(), f.claims, outdated{sealer}, scope)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	now, err := f.claims.Raw(t.Context(), scope, rec.ID)
	require.NoError(t, err)
	require.NotEqual(t, was, now)
	f.fake.JudgeFunc = nil
	f.verdict("succeeded", rec)
}

// TestAbsenceProvesSomethingOnlyOnceAllHasSettled: settle counted from the last
// moment something may have been sent, and never before the deadline.
func TestAbsenceProvesSomethingOnlyOnceAllHasSettled(t *testing.T) {
	f := newFixture(t)
	f.checks(lookupRule(connectors.NotPerformed))
	f.finds(connectors.Found{Kind: connectors.FoundNone})
	rec := f.held()
	f.verdict("still_unknown", rec)
	f.advance(settle - time.Second) // the deadline, a lease and a time-out, is over by then
	f.verdict("still_unknown", rec)
	f.advance(2 * time.Second)
	f.verdict("not_performed", rec)
	f.succeeds(`{}`)
	require.Equal(t, 2, f.vendor.sends()-3, "two writes, three look-ups")
}

func TestAbsenceUsuallyProvesNothing(t *testing.T) {
	f := newFixture(t)
	f.checks(lookupRule(connectors.StillUnknown))
	f.finds(connectors.Found{Kind: connectors.FoundNone})
	rec := f.held()
	f.advance(window - time.Minute)
	f.verdict("still_unknown", rec)
}

// TestALookupThatCannotBeReadProvesNothing: trouble of any kind, panics of the
// connector among them.
func TestALookupThatCannotBeReadProvesNothing(t *testing.T) {
	for name, trouble := range map[string]func(f *fixture){
		"doubtful":        func(f *fixture) { f.finds(connectors.Found{Kind: connectors.Doubtful}) },
		"no answer":       func(f *fixture) { f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonDeadline}) },
		"cut":             func(f *fixture) { f.vendor.says(in(answered(200, "", `[`), wire.Cut)) },
		"not sent":        func(f *fixture) { f.vendor.says(wire.Exchange{Phase: wire.NotSent, Reason: wire.ReasonRefused}) },
		"credential gone": func(f *fixture) { f.accounts.credsErr = errBroken },
		"connection made anew": func(f *fixture) {
			f.accounts.conn.ID = "con_2"
		},
		"check panics": func(f *fixture) {
			f.fake.CheckFunc = func(context.Context, connectors.Op) ([]connectors.CheckStep, error) { panic("check") }
		},
		"match panics": func(f *fixture) {
			f.fake.LookupFunc = func(context.Context, connectors.Op, int, connectors.Answer) (connectors.Found, error) { panic("match") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.checks(lookupRule(connectors.NotPerformed))
			f.finds(connectors.Found{Kind: connectors.FoundNone})
			rec := f.held()
			f.advance(2 * settle)
			trouble(f)
			f.verdict("still_unknown", rec)
			require.Equal(t, dedupe.Held, f.get(rec.ID).State)
		})
	}
}

// TestTheEvidenceOfACheckIsKept: in the audit and in the history, without a
// byte of an answer.
func TestTheEvidenceOfACheckIsKept(t *testing.T) {
	f := newFixture(t)
	f.checks(lookupRule(connectors.StillUnknown))
	f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1, Result: []byte(`{"id":1.10}`)})
	rec := f.held()
	body := `{"data":["something of the vendor's"]}`
	x := answered(200, "application/json", body)
	x.Body.SHA256 = sha256.Sum256([]byte(body))
	f.vendor.says(x)
	got := f.verdict("succeeded", rec)
	require.Equal(t, `{"id":1.10}`, string(got.View.Answer.Data))
	digest := hex.EncodeToString(x.Body.SHA256[:])
	var row audit.Row
	for _, r := range f.rows() {
		if r.Event == audit.Checked {
			row = r
		}
	}
	require.Equal(t, "lookup_one_1", row.Reason)
	require.Equal(t, 200, row.VendorStatus)
	require.Equal(t, "sha256:"+digest, row.Subject)
	require.Equal(t, "key_2", row.Actor.KeyID)
	history := got.View.Record.History
	require.Equal(t, "lookup: one, status 200, matches 1, sha256 "+digest, history[len(history)-2].Detail)
}

// TestAResendIsTheStoredRequest: to the byte, with the vendor's key.
func TestAResendIsTheStoredRequest(t *testing.T) {
	f := newFixture(t)
	f.checks(resendRule())
	f.fake.PlanFunc = func(_ context.Context, op connectors.Op) (connectors.Request, error) {
		return connectors.Request{Method: "POST", URL: "https://vendor.example/things?q=%7E", Body: []byte(`{ "n": 1.10 }`),
			Header: map[string][]string{"Idempotency-Key": {op.VendorKey}, "X-A": {"1", "2"}}}, nil
	}
	rec := f.held()
	f.fake.PlanFunc = func(context.Context, connectors.Op) (connectors.Request, error) { panic("planned anew") }
	f.verdict("succeeded", rec)
	require.Equal(t, 2, f.vendor.sends())
	require.Equal(t, f.vendor.sent[0], f.vendor.sent[1])
	require.Equal(t, []string{"claimed", "held", "checked", "checked", "succeeded"}, f.events())
	require.True(t, f.get(rec.ID).Resent)
	require.Len(t, f.get(rec.ID).Attempts, 2)
}

// TestAResendIsMarkedBeforeItsFirstByte: no mark, no byte.
func TestAResendIsMarkedBeforeItsFirstByte(t *testing.T) {
	f := newFixture(t)
	f.checks(resendRule())
	rec := f.held()
	f.store.fail("checked", 1)
	f.verdict("still_unknown", rec)
	require.Equal(t, 1, f.vendor.sends())
	f.store.on(nil)
	f.vendor.before = func() { require.True(t, f.get(rec.ID).Resent) }
	f.verdict("succeeded", rec)
}

// TestAHeldUpCheckerSendsNothing: the boot clock says so, right before the first
// byte.
func TestAHeldUpCheckerSendsNothing(t *testing.T) {
	f := newFixture(t)
	f.checks(resendRule())
	rec := f.held()
	f.vendor.before = func() { f.boot.set(lease * 2 / 3) }
	f.verdict("still_unknown", rec)
	require.Equal(t, 1, f.vendor.sends())
	require.Equal(t, 2, f.vendor.calls())
}

// TestNoResend: where the vendor may have forgotten the key, and on a paused
// connection.
func TestNoResend(t *testing.T) {
	for name, prepare := range map[string]func(f *fixture){
		"past within": func(f *fixture) { f.advance(within) },
		"so close that it might leave past within": func(f *fixture) { f.advance(within - lease) },
		"paused": func(f *fixture) { f.accounts.conn.Paused = true },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.checks(resendRule())
			rec := f.held()
			prepare(f)
			f.verdict("still_unknown", rec)
			require.Equal(t, 1, f.vendor.sends())
		})
	}
}

// TestWhatAResendProves: success always, a refusal once the first request can
// land no more, anything else nothing.
func TestWhatAResendProves(t *testing.T) {
	f := newFixture(t)
	f.checks(resendRule())
	rec := f.held()
	for _, x := range []wire.Exchange{
		answered(429, "", `{}`), answered(401, "", `{}`), answered(503, "", `{}`), answered(400, "", `{}`),
		{Phase: wire.SentNoAnswer, Reason: wire.ReasonReset}, {Phase: wire.NotSent, Reason: wire.ReasonDNS},
	} {
		f.vendor.says(x)
		f.verdict("still_unknown", rec)
	}
	f.advance(lease + connectors.DefaultTimeout)
	f.vendor.says(answered(400, "", `{}`))
	f.verdict("not_performed", rec)
	require.Equal(t, dedupe.Refused, f.get(rec.ID).State)
	f.fails(actions.VendorRefused, `{}`)
}

// TestTheAnswerToAResendIsNotLost: a store that does not take it is asked again.
func TestTheAnswerToAResendIsNotLost(t *testing.T) {
	for name, trouble := range map[string]func(f *fixture){
		"not applied": func(f *fixture) { f.store.fail("succeeded", 3) },
		"reply lost":  func(f *fixture) { f.store.deaf("succeeded", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.checks(resendRule())
			rec := f.held()
			trouble(f)
			f.verdict("succeeded", rec)
			require.Equal(t, 2, f.vendor.sends())
		})
	}
}

// TestAResendThatSettlesALostWriteIsRecovered: with the event of that name.
func TestAResendThatSettlesALostWriteIsRecovered(t *testing.T) {
	f := newFixture(t)
	f.checks(resendRule())
	var lost dedupe.ActionID
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		if kind == "held" { // the owner never gets to say so
			return ledger.Result{}, ledger.ErrUnavailable
		}
		return next()
	})
	f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonCut})
	f.fails(actions.OutcomeUnknown, `{}`)
	lost = f.only().ID
	f.advance(lease)
	moved, err := f.claims.Sweep(t.Context(), scope, sweeping)
	require.NoError(t, err)
	require.Equal(t, dedupe.Swept{Held: 1}, moved)
	_, err = f.svc.Check(t.Context(), f.operator(), lost.String(), "req_2", "rest")
	var e *actions.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, actions.StillPossible, e.Code)
	f.advance(connectors.DefaultTimeout)
	f.vendor.says(answered(201, "", `{}`))
	f.verdict("succeeded", f.get(lost))
	require.Contains(t, f.events(), "recovered")
	require.Regexp(t, `level=WARN msg="write of a lost gateway recovered by a resend" action_id=`+lost.String(), f.log.String())
}

// TestOneCheckAtATime: the second is told so, and a resolve too.
func TestOneCheckAtATime(t *testing.T) {
	f := newFixture(t)
	f.checks(lookupRule(connectors.StillUnknown))
	f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1})
	rec := f.held()
	working, release := f.vendor.stalls()
	done := make(chan error, 1)
	go func() {
		_, err := f.svc.Check(context.WithoutCancel(t.Context()), f.operator(), rec.ID.String(), "req_2", "rest")
		done <- err
	}()
	receive(t, working)
	var e *actions.Error
	_, err := f.svc.Check(t.Context(), f.operator(), rec.ID.String(), "req_3", "rest")
	require.ErrorAs(t, err, &e)
	require.Equal(t, actions.CheckRunning, e.Code)
	_, err = f.svc.Resolve(t.Context(), f.operator(), rec.ID.String(), actions.Resolution{Note: "?"}, "req_4")
	require.ErrorAs(t, err, &e)
	require.Equal(t, actions.CheckRunning, e.Code)
	release(answered(200, "", `[]`))
	require.NoError(t, receive(t, done))
	require.Equal(t, dedupe.Succeeded, f.get(rec.ID).State)
}

// TestADrainCutsACheck: it ends, leaves the write held, and
// frees it for the next gateway.
func TestADrainCutsACheck(t *testing.T) {
	f := newFixture(t)
	f.checks(lookupRule(connectors.NotPerformed))
	rec := f.held()
	working, _ := f.vendor.stalls()
	done := make(chan error, 1)
	go func() {
		_, err := f.svc.Check(context.WithoutCancel(t.Context()), f.operator(), rec.ID.String(), "req_2", "rest")
		done <- err
	}()
	receive(t, working)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.svc.Close(ctx)
	require.NoError(t, receive(t, done))
	got := f.get(rec.ID)
	require.Equal(t, dedupe.Held, got.State)
	require.True(t, got.CheckEnd.IsZero())
	_, err := f.svc.Check(t.Context(), f.operator(), rec.ID.String(), "req_3", "rest")
	var e *actions.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, actions.Draining, e.Code)
}

// TestAbsenceRightAfterAResendProvesNothing: the resend may yet land, however
// long it was waited for.
func TestAbsenceRightAfterAResendProvesNothing(t *testing.T) {
	f := newFixture(t)
	brief := connectors.CheckRule{Kind: connectors.Lookup, Settle: time.Millisecond, Absent: connectors.NotPerformed}
	f.checks(resendRule(), brief)
	f.finds(connectors.Found{Kind: connectors.FoundNone})
	rec := f.held()
	f.advance(rec.Deadline.Sub(f.claims.Now()) + time.Second)
	f.vendor.answer = func(_ context.Context, req wire.Request) wire.Exchange {
		if req.Method == "GET" {
			return answered(200, "", `[]`)
		}
		// It takes longer than a lease, which is renewed meanwhile as the check does.
		f.advance(f.claims.Lease() * 2 / 3)
		now := f.get(rec.ID)
		require.NoError(t, f.claims.RenewCheck(t.Context(), &dedupe.CheckHandle{Scope: scope, Record: now, Token: now.Checker}))
		f.advance(f.claims.Lease() * 2 / 3)
		require.True(t, f.claims.Now().After(now.SentUntil.Add(brief.Settle)), "no byte can leave any more")
		return wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonDeadline}
	}
	f.verdict("still_unknown", rec)
	require.True(t, f.get(rec.ID).Resent)
	f.accounts.conn.Paused = true // so that it is not resent once more
	f.advance(time.Second)
	f.verdict("not_performed", rec)
}

// oneScope is the directory of the only tenant, which may have limits. It counts
// how often they are read, which a pass of the reconciler that has due checks does.
type oneScope struct {
	own  tenants.Limits
	read *atomic.Int64
}

func (oneScope) Refs(_ context.Context, each func(tenants.Ref) error) error {
	return each(tenants.Ref{Tenant: "acme", TenantID: "ten_1", Scope: scope})
}

func (o oneScope) All(ctx context.Context, each func(tenants.Ref) error) error {
	return o.Refs(ctx, each)
}

func (o oneScope) GetTenant(context.Context, string) (tenants.Tenant, error) {
	if o.read != nil {
		o.read.Add(1)
	}
	return tenants.Tenant{Ref: tenants.Ref{Tenant: "acme", TenantID: "ten_1", Scope: scope}, Limits: o.own}, nil
}

// brisk is a reconciler for tests, on the fixture's clock.
func brisk(_ *fixture, _ *dedupe.Config, c *actions.Config) {
	c.Reconcile = actions.Reconcile{Every: 5 * time.Millisecond, First: 4 * time.Second, Most: time.Hour}
}

// reconciles runs the reconciler beside the test, until it ends.
func (f *fixture) reconciles() { f.reconcilesFor(oneScope{}) }

func (f *fixture) reconcilesFor(all oneScope) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.Context()))
	done := make(chan struct{})
	go func() { defer close(done); actions.NewReconciler(f.svc, all).Run(ctx) }()
	f.Cleanup(func() { cancel(); <-done })
}

// TestTheReconcilerLooksEverMoreRarely: first once settle has passed, then later
// each time, and nothing past the end of the hold.
func TestTheReconcilerLooksEverMoreRarely(t *testing.T) {
	f := newFixture(t, brisk)
	f.checks(lookupRule(connectors.StillUnknown))
	f.finds(connectors.Found{Kind: connectors.FoundNone})
	rec := f.held()
	require.Equal(t, rec.Created.Add(settle), rec.NextCheck)
	f.reconciles()
	var waits []time.Duration
	for n := 1; ; n++ {
		next := f.get(rec.ID).NextCheck
		if next.IsZero() {
			break
		}
		f.advance(next.Sub(f.claims.Now()) + time.Millisecond)
		f.eventually("it has looked", func() bool { return f.get(rec.ID).Checks == n && f.get(rec.ID).CheckEnd.IsZero() })
		if after := f.get(rec.ID).NextCheck; !after.IsZero() {
			waits = append(waits, after.Sub(f.claims.Now()))
			require.Less(t, after, rec.HoldUntil)
		}
	}
	require.Greater(t, len(waits), 20)
	require.Less(t, len(waits), 40)
	require.Less(t, waits[0], waits[3])
	for _, w := range waits {
		require.GreaterOrEqual(t, w, settle*3/4)
		require.LessOrEqual(t, w, time.Hour*5/4)
	}
	require.Equal(t, dedupe.Held, f.get(rec.ID).State)
	require.Equal(t, len(waits)+2, f.vendor.calls(), "the write and a look-up each")
}

// TestTheReconcilerLeavesAlone: a paused connection, and resends that the
// connection does not ask for; their checks are put off, without a row.
func TestTheReconcilerLeavesAlone(t *testing.T) {
	for name, prepare := range map[string]func(f *fixture){
		"a paused connection":     func(f *fixture) { f.checks(lookupRule(connectors.StillUnknown)); f.accounts.conn.Paused = true },
		"a resend without a word": func(f *fixture) { f.checks(resendRule()) },
		"another connection":      func(f *fixture) { f.checks(lookupRule(connectors.StillUnknown)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, brisk)
			f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1})
			f.checks(lookupRule(connectors.StillUnknown))
			paused := f.accounts.conn.Paused
			prepare(f)
			was := f.accounts.conn
			f.accounts.conn.Paused = paused
			rec := f.held()
			f.accounts.conn = was
			if name == "another connection" {
				f.accounts.conn.ID = "con_2"
			}
			rows := len(f.rows())
			f.advance(settle + time.Second)
			f.reconciles()
			f.eventually("it is put off", func() bool { return f.get(rec.ID).NextCheck.After(f.claims.Now().Add(30 * time.Second)) })
			require.Equal(t, 1, f.vendor.calls())
			require.Len(t, f.rows(), rows)
		})
	}
}

// TestTheReconcilerResendsWhereTold: and only there.
func TestTheReconcilerResendsWhereTold(t *testing.T) {
	f := newFixture(t, brisk)
	f.checks(resendRule())
	f.accounts.conn.AutoResend = true
	rec := f.held()
	f.advance(settle)
	f.reconciles()
	f.eventually("it is settled", func() bool { return f.get(rec.ID).State == dedupe.Succeeded })
	require.Equal(t, 2, f.vendor.sends())
}

// TestALapseIsToldAndTheNextDoRunsWithItsName.
func TestALapseIsToldAndTheNextDoRunsWithItsName(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := actions.NewMetrics(registry)
	f := newFixture(t)
	rec := f.held()
	f.advance(window)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		actions.Sweep(ctx, f.claims, oneScope{}, metrics, slog.New(slog.NewTextHandler(f.log, nil)))
	}()
	f.eventually("it has lapsed", func() bool { return f.get(rec.ID).State == dedupe.Lapsed })
	f.eventually("that is counted", func() bool {
		families, err := registry.Gather()
		require.NoError(t, err)
		for _, family := range families {
			if family.GetName() == "holdfast_lapsed_total" {
				return family.GetMetric()[0].GetCounter().GetValue() == 1
			}
		}
		return false
	})
	stop()
	receive(t, ended)
	require.Contains(t, f.log.String(), "held writes lapsed with their outcome unknown")
	require.Contains(t, f.events(), "lapsed")
	next := f.succeeds(`{}`)
	require.Equal(t, &dedupe.Previous{ID: rec.ID, State: dedupe.Lapsed, At: f.get(rec.ID).Settled}, next.Record.Previous)
}

// TestWithoutCorrelationNoMarkerIsLookedFor: the look-up would find nothing and
// might take that for proof; the answer says what is lost.
func TestWithoutCorrelationNoMarkerIsLookedFor(t *testing.T) {
	f := newFixture(t)
	rule := lookupRule(connectors.NotPerformed)
	rule.ByMarker = true
	f.checks(rule)
	f.finds(connectors.Found{Kind: connectors.FoundNone})
	f.accounts.conn.Uncorrelated = true
	rec := f.held()
	require.True(t, rec.NextCheck.IsZero(), "the gateway does not look by itself")
	view, err := f.svc.Get(t.Context(), f.operator(), rec.ID.String())
	require.NoError(t, err)
	require.Equal(t, "manual", view.Check.How)
	require.False(t, view.Check.Automatic)
	require.Contains(t, view.Check.Detail, "correlation is off")
	f.advance(2 * settle)
	sends := f.vendor.sends()
	require.Contains(t, f.verdict("still_unknown", rec).Detail, "correlation is off")
	require.Equal(t, sends, f.vendor.sends())
	require.True(t, f.fake.Planned()[0].Uncorrelated)
}

// TestNothingIsSentThatMustNotCarryTheMarkerAndDoes.
func TestNothingIsSentThatMustNotCarryTheMarkerAndDoes(t *testing.T) {
	f := newFixture(t)
	action := f.fake.SpecValue.Actions["create_thing"]
	action.MarkerFixed = true
	f.fake.SpecValue.Actions["create_thing"] = action
	f.succeeds(`{"n":1}`)
	f.accounts.conn.Uncorrelated = true
	require.Equal(t, actions.AskOperator, f.fails(actions.NotSent, `{"n":2}`).Next)
	require.Equal(t, 1, f.vendor.sends())
}

// TestNotPerformedHasToWaitForTheVendor: what was sent may stand in the vendor's
// queue after our own time-out, so that who looks too early sees nothing of it.
func TestNotPerformedHasToWaitForTheVendor(t *testing.T) {
	f := newFixture(t)
	f.checks(lookupRule(connectors.StillUnknown))
	rec := f.held()
	require.False(t, rec.OwnerLost)
	resolve := func(succeeded bool) error {
		_, err := f.svc.Resolve(t.Context(), f.operator(), rec.ID.String(), actions.Resolution{Succeeded: succeeded}, "req_1")
		return err
	}
	f.advance(settle - time.Second)
	var early *actions.Error
	require.ErrorAs(t, resolve(false), &early)
	require.Equal(t, actions.StillPossible, early.Code)
	require.Positive(t, early.RetryAfter)
	require.Contains(t, early.Detail, "the vendor may still be doing")
	require.Equal(t, dedupe.Held, f.get(rec.ID).State)
	f.advance(2 * time.Second)
	require.NoError(t, resolve(false))
	require.Equal(t, dedupe.NotDone, f.get(rec.ID).State)

	f = newFixture(t)
	f.checks(lookupRule(connectors.StillUnknown))
	rec = f.held()
	require.NoError(t, resolve(true), "who has seen it need not wait")
}
