package actions_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/wire"
)

// caller is a principal of the fixture's tenant with these rights.
func (f *fixture) caller(keyID string, scopes ...tenants.KeyScope) tenants.Principal {
	p := f.request(`{}`).Principal
	p.KeyID, p.Scopes = keyID, scopes
	return p
}

func TestWhoSeesAnAction(t *testing.T) {
	f := newFixture(t)
	id := f.succeeds(`{}`).Record.ID.String()
	stranger := f.caller("key_1", tenants.ScopeRead)
	stranger.Scope = ledger.ScopeOf("ten_2")
	for name, c := range map[string]struct {
		who  tenants.Principal
		sees bool
	}{
		"the key that made it":         {f.caller("key_1", tenants.ScopeDo), true},
		"another key that only writes": {f.caller("key_2", tenants.ScopeDo), false},
		"a key that reads":             {f.caller("key_2", tenants.ScopeRead), true},
		"a key that resolves":          {f.caller("key_2", tenants.ScopeResolve), true},
		"another tenant's":             {stranger, false},
	} {
		t.Run(name, func(t *testing.T) {
			view, err := f.svc.Get(t.Context(), c.who, id)
			listed, _, listErr := f.svc.List(t.Context(), c.who, actions.ListFilter{}, "", 10)
			require.NoError(t, listErr)
			require.Equal(t, c.sees, len(listed) == 1)
			if !c.sees {
				f.failed(actions.NotFound, actions.Reply{}, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, `{"ok":true}`, string(view.Answer.Data))
		})
	}
	_, err := f.svc.Get(t.Context(), f.caller("key_1", tenants.ScopeRead), "act_nonsense")
	f.failed(actions.NotFound, actions.Reply{}, err)
}

func TestLists(t *testing.T) {
	f := newFixture(t)
	reader := f.caller("key_2", tenants.ScopeRead)
	f.succeeds(`{"n":1}`)
	f.clock.advance(time.Second)
	f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer})
	f.fails(actions.OutcomeUnknown, `{"n":2}`)
	first, next, err := f.svc.List(t.Context(), reader, actions.ListFilter{}, "", 1)
	require.NoError(t, err)
	require.Equal(t, dedupe.Held, first[0].Record.State)
	require.NotNil(t, first[0].Check)
	second, _, err := f.svc.List(t.Context(), reader, actions.ListFilter{}, next, 1)
	require.NoError(t, err)
	require.Equal(t, dedupe.Succeeded, second[0].Record.State)
	held, _, err := f.svc.List(t.Context(), reader, actions.ListFilter{State: "held"}, "", 10)
	require.NoError(t, err)
	require.Len(t, held, 1)
	_, _, err = f.svc.List(t.Context(), reader, actions.ListFilter{State: "unsure"}, "", 10)
	f.failed(actions.InvalidRequest, actions.Reply{}, err)
	_, _, err = f.svc.List(t.Context(), reader, actions.ListFilter{}, "nonsense", 10)
	f.failed(actions.InvalidRequest, actions.Reply{}, err)
}

func TestResolve(t *testing.T) {
	held := func(t *testing.T) (*fixture, string, tenants.Principal) {
		f := newFixture(t)
		f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer})
		id := f.fails(actions.OutcomeUnknown, `{}`).Record.ID.String()
		f.vendor.answer = nil
		return f, id, f.caller("key_2", tenants.ScopeResolve)
	}
	t.Run("done: replayed from then on", func(t *testing.T) {
		f, id, operator := held(t)
		view, err := f.svc.Resolve(t.Context(), operator, id, actions.Resolution{Succeeded: true, Result: []byte(`{"n":1.10}`), Note: "seen"}, "req_9")
		require.NoError(t, err)
		require.Equal(t, dedupe.Succeeded, view.Record.State)
		reply := f.succeeds(`{}`)
		require.True(t, reply.Replayed)
		require.Equal(t, `{"n":1.10}`, string(reply.Answer.Data))
		require.Equal(t, dedupe.ByOperator, reply.Record.Evidence)
		require.Equal(t, 1, f.vendor.sends())
		row := f.rows()[2]
		require.Equal(t, audit.Resolved, row.Event)
		require.Equal(t, audit.Actor{Kind: audit.KindKey, KeyID: "key_2"}, row.Actor)
		require.Equal(t, "req_9", row.RequestID)
	})
	t.Run("done, with nothing to show", func(t *testing.T) {
		f, id, operator := held(t)
		_, err := f.svc.Resolve(t.Context(), operator, id, actions.Resolution{Succeeded: true, Note: "seen"}, "req_9")
		require.NoError(t, err)
		require.Equal(t, `null`, string(f.succeeds(`{}`).Answer.Data))
	})
	t.Run("not done: runs again", func(t *testing.T) {
		f, id, operator := held(t)
		_, err := f.svc.Resolve(t.Context(), operator, id, actions.Resolution{Note: "looked"}, "req_9")
		require.NoError(t, err)
		require.False(t, f.succeeds(`{}`).Replayed)
		require.Equal(t, 2, f.vendor.sends())
	})
	t.Run("once", func(t *testing.T) {
		f, id, operator := held(t)
		_, err := f.svc.Resolve(t.Context(), operator, id, actions.Resolution{Note: "looked"}, "req_9")
		require.NoError(t, err)
		_, err = f.svc.Resolve(t.Context(), operator, id, actions.Resolution{Succeeded: true, Note: "no, done"}, "req_9")
		require.Equal(t, dedupe.NotDone, f.failed(actions.NotHeld, actions.Reply{}, err).Record.State)
	})
	t.Run("not with a result that is not JSON", func(t *testing.T) {
		f, id, operator := held(t)
		for _, result := range []string{`{`, "\"\xff\"", `1e999`, `{"a":1,"a":2}`} {
			_, err := f.svc.Resolve(t.Context(), operator, id, actions.Resolution{Succeeded: true, Result: []byte(result)}, "req_9")
			f.failed(actions.InvalidRequest, actions.Reply{}, err)
		}
		require.Equal(t, dedupe.Held, f.only().State)
	})
	t.Run("not while the lost owner might still send", func(t *testing.T) {
		f, out, release := lapse(t)
		_, err := f.svc.Resolve(t.Context(), f.caller("key_2", tenants.ScopeResolve), f.only().ID.String(), actions.Resolution{}, "req_9")
		require.NotZero(t, f.failed(actions.StillPossible, actions.Reply{}, err).RetryAfter)
		release(201)
		require.NoError(t, receive(t, out).err)
	})
	t.Run("not another tenant's", func(t *testing.T) {
		f, id, operator := held(t)
		operator.Scope = ledger.ScopeOf("ten_2")
		_, err := f.svc.Resolve(t.Context(), operator, id, actions.Resolution{}, "req_9")
		f.failed(actions.NotFound, actions.Reply{}, err)
		require.Equal(t, dedupe.Held, f.only().State)
	})
}

func TestAStoredAnswerThatCannotBeReadIsNeverSentAgain(t *testing.T) {
	f := newFixture(t)
	f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer})
	id := f.fails(actions.OutcomeUnknown, `{}`).Record.ID
	_, err := f.claims.Resolve(t.Context(), scope, id, dedupe.Resolution{
		State: dedupe.Succeeded, Answer: []byte("no answer of ours"), Scribe: sweeping,
	})
	require.NoError(t, err)
	f.fails(actions.AnswerUnreadable, `{}`)
	f.fails(actions.AnswerUnreadable, `{}`, retryRefused, allowDuplicate)
	require.Equal(t, 1, f.vendor.sends())
	_, err = f.svc.Get(t.Context(), f.caller("key_1", tenants.ScopeRead), id.String())
	f.failed(actions.AnswerUnreadable, actions.Reply{}, err)
}

// scopeList lists scopes, the first of which cannot be swept.
type scopeList struct {
	scopes []ledger.Scope
	listed chan struct{}
}

func (scopeList) All(context.Context, func(tenants.Ref) error) error { return nil }

func (s scopeList) Refs(_ context.Context, each func(tenants.Ref) error) error {
	defer close(s.listed)
	for _, scope := range s.scopes {
		if err := each(tenants.Ref{Tenant: "acme", Scope: scope}); err != nil {
			return err
		}
	}
	return nil
}

func TestTheSweepGoesOnBehindAScopeThatFails(t *testing.T) {
	f := newFixture(t)
	working, release := f.vendor.stalls()
	out := f.start(t.Context(), f.request(`{}`))
	receive(t, working)
	f.clock.advance(lease)
	bad := ledger.ScopeOf("ten_0")
	claims := dedupe.New(dedupe.Config{
		Store: badScope{f.store, bad}, Lease: lease, History: window,
	})
	ctx, stop := context.WithCancel(t.Context())
	list := scopeList{scopes: []ledger.Scope{bad, scope}, listed: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		actions.Sweep(ctx, claims, list, actions.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	}()
	receive(t, list.listed)
	require.Equal(t, dedupe.Held, f.only().State)
	last := f.rows()[len(f.rows())-1]
	require.Equal(t, []string{"acme", "sweep", "system"}, []string{last.Tenant, last.Front, last.Actor.Kind})
	stop()
	receive(t, ended)
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, out).err)
}

// badScope is a store that cannot list one scope.
type badScope struct {
	ledger.Store
	bad ledger.Scope
}

func (b badScope) Entries(ctx context.Context, scope ledger.Scope, r ledger.EntryRange) ([]ledger.Entry, error) {
	if scope == b.bad {
		return nil, ledger.ErrUnavailable
	}
	return b.Store.Entries(ctx, scope, r)
}
