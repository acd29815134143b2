package actions_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/wire"
)

func TestNothingIsSentBeforeTheClaimIsDurable(t *testing.T) {
	f := newFixture(t)
	claiming, durable := make(chan struct{}), make(chan struct{})
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		if kind == "claimed" {
			close(claiming)
			<-durable
		}
		return next()
	})
	var state dedupe.State
	f.vendor.answer = func(context.Context, wire.Request) wire.Exchange {
		state = f.only().State
		return answered(201, "", `{}`)
	}
	out := f.start(t.Context(), f.request(`{"n":1}`))
	receive(t, claiming)
	require.Zero(t, f.vendor.calls())
	close(durable)
	require.NoError(t, receive(t, out).err)
	require.Equal(t, dedupe.InFlight, state, "the claim was there when the vendor was called")
	require.Equal(t, 1, f.vendor.sends())
}

func TestAWriteIsSentOnceAndThenReplayed(t *testing.T) {
	f := newFixture(t)
	f.vendor.says(answered(201, "application/json", `{"amount":1.10,"list":[]}`))
	first := f.succeeds(`{"n":1}`)
	require.False(t, first.Replayed)
	again := f.succeeds(` {"n": 1} `)
	require.True(t, again.Replayed)
	require.EqualValues(t, 1, again.Replays)
	require.Equal(t, first.Record.ID, again.Record.ID)
	require.Equal(t, first.Answer, again.Answer)
	require.Equal(t, `{"amount":1.10,"list":[]}`, string(again.Answer.Data), "byte for byte")
	require.Equal(t, 1, f.vendor.calls())
	require.Equal(t, "Bearer "+token, f.vendor.sent[0].Header.Get("Authorization"))
	require.Equal(t, `{"n":1}`, string(f.vendor.sent[0].Body))
}

func TestOfManyAtOnceOneSends(t *testing.T) {
	f := newFixture(t)
	working, release := f.vendor.stalls()
	first := f.start(t.Context(), f.request(`{"n":1}`))
	receive(t, working)
	var others sync.WaitGroup
	for range 16 {
		others.Go(func() {
			_, err := f.svc.Do(context.Background(), f.request(`{"n":1}`))
			var e *actions.Error
			if !errors.As(err, &e) || e.Code != actions.InFlight {
				t.Errorf("a duplicate got %v", err)
			}
		})
	}
	others.Wait()
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, first).err)
	require.Equal(t, 1, f.vendor.calls())
}

func TestSendIsNotCalled(t *testing.T) {
	held := func(f *fixture) {
		f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonCut})
		f.fails(actions.OutcomeUnknown, `{"n":1}`)
	}
	for name, c := range map[string]struct {
		before func(f *fixture)
		code   actions.Code // "" for success
		change []func(*actions.Request)
	}{
		"for a held write":        {before: held, code: actions.OutcomeUnknown},
		"for a held write, retry": {before: held, code: actions.OutcomeUnknown, change: []func(*actions.Request){retryRefused}},
		"for a held write, dup":   {before: held, code: actions.OutcomeUnknown, change: []func(*actions.Request){allowDuplicate}},
		"for a twin":              {before: held, code: actions.TwinUnsettled, change: []func(*actions.Request){withKey("another")}},
		"for a success":           {before: func(f *fixture) { f.succeeds(`{"n":1}`) }},
		"for a success, retry":    {before: func(f *fixture) { f.succeeds(`{"n":1}`) }, change: []func(*actions.Request){retryRefused, allowDuplicate}},
		"for a refusal": {code: actions.VendorRefused, before: func(f *fixture) {
			f.vendor.says(answered(422, "", `{}`))
			f.fails(actions.VendorRefused, `{"n":1}`)
		}},
		"for a reused key": {code: actions.KeyReused, change: []func(*actions.Request){withKey("k")}, before: func(f *fixture) {
			f.succeeds(`{"n":2}`, withKey("k"))
		}},
		"for a dry run":            {before: func(*fixture) {}, change: []func(*actions.Request){dryRun}},
		"for a suspended tenant":   {before: func(*fixture) {}, code: actions.TenantSuspended, change: []func(*actions.Request){suspended}},
		"on a paused connection":   {before: func(f *fixture) { f.accounts.conn.Paused = true }, code: actions.ConnectionPaused},
		"while not ready":          {before: func(f *fixture) { f.ready = ledger.ErrNotReady }, code: actions.StoreUnavailable},
		"with a connector unkept":  {before: func(f *fixture) { f.catalog.claimable = false }, code: actions.NotSent},
		"with a connector unknown": {before: func(f *fixture) { f.catalog.err = connectors.ErrUnknownConnector }, code: actions.NotSent},
		"with an unfit body": {code: actions.InvalidBody, before: func(f *fixture) {
			f.fake.PlanFunc = func(context.Context, connectors.Op) (connectors.Request, error) {
				return connectors.Request{}, connectors.Invalid("/n", "no")
			}
		}},
		"without a plan": {code: actions.NotSent, before: func(f *fixture) {
			f.fake.PlanFunc = func(context.Context, connectors.Op) (connectors.Request, error) {
				return connectors.Request{}, connectors.ErrPlan
			}
		}},
		"without a grant": {before: func(*fixture) {}, code: actions.Forbidden, change: []func(*actions.Request){func(r *actions.Request) { r.Principal.Scopes = nil }}},
		"after the connection changed": {code: actions.StoreUnavailable, before: func(f *fixture) {
			f.accounts.conn.Version = ledger.NewNonce().Version() // never the stored one
		}},
		"when the claim is refused": {before: func(f *fixture) { f.store.fail("claimed", 1) }, code: actions.StoreUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.before(f)
			calls := f.vendor.calls()
			reply, err := f.do(f.request(`{"n":1}`, c.change...))
			if c.code == "" {
				require.NoError(t, err)
			} else {
				f.failed(c.code, reply, err)
			}
			require.Equal(t, calls, f.vendor.calls())
		})
	}
}

func TestWhatExistsIsAnsweredWhateverHasChanged(t *testing.T) {
	for name, change := range map[string]func(f *fixture){
		"paused":      func(f *fixture) { f.accounts.conn.Paused = true },
		"not ready":   func(f *fixture) { f.ready = ledger.ErrNotReady },
		"unclaimable": func(f *fixture) { f.catalog.claimable = false },
		"guard":       func(f *fixture) { f.accounts.conn.Version = ledger.NewNonce().Version() },
		"credentials": func(f *fixture) { f.accounts.credsErr = errBroken },
		"plan": func(f *fixture) {
			f.fake.PlanFunc = func(context.Context, connectors.Op) (connectors.Request, error) {
				return connectors.Request{}, connectors.ErrPlan
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.succeeds(`{}`)
			change(f)
			require.True(t, f.succeeds(`{}`).Replayed)
		})
	}
}

func TestARefusalIsRunAgainOnlyWhenAsked(t *testing.T) {
	f := newFixture(t)
	f.vendor.says(answered(422, "", `{}`))
	first := f.fails(actions.VendorRefused, `{}`)
	require.False(t, first.Replayed)
	again := f.fails(actions.VendorRefused, `{}`)
	require.True(t, again.Replayed)
	require.Equal(t, 1, f.vendor.sends())
	f.vendor.answer = nil
	reply := f.succeeds(`{}`, retryRefused)
	require.Equal(t, 2, f.vendor.sends())
	require.Equal(t, first.Record.ID, reply.Record.Previous.ID)
	require.NotEqual(t, f.vendor.sent[0].Header.Get("X-Marker"), f.vendor.sent[1].Header.Get("X-Marker"))
}

func TestAReleasedWriteIsClaimedAfresh(t *testing.T) {
	f := newFixture(t)
	f.vendor.says(answered(429, "", `{}`))
	f.fails(actions.VendorRateLimited, `{}`)
	f.vendor.answer = nil
	require.False(t, f.succeeds(`{}`).Replayed)
	require.Equal(t, 2, f.vendor.sends())
}

func TestAGuardThatFailsForgetsTheKey(t *testing.T) {
	f := newFixture(t)
	f.accounts.conn.Version = ledger.NewNonce().Version()
	f.fails(actions.StoreUnavailable, `{}`)
	require.Equal(t, []string{"key_1"}, f.keys.forgotten)
}

// TestNothingRestsOnAConnectionThatIsOnlyRemembered: whatever was remembered of a
// connection, a `do` is answered as it is now.
func TestNothingRestsOnAConnectionThatIsOnlyRemembered(t *testing.T) {
	for name, stale := range map[string]func(*connections.Connection){
		"an older one":          func(*connections.Connection) {},
		"one that was paused":   func(c *connections.Connection) { c.Paused = true },
		"another of its name":   func(c *connections.Connection) { c.ID = "con_0" },
		"one without an action": func(c *connections.Connection) { c.Connector = "nothing@1" },
		"what cannot be done":   func(c *connections.Connection) { c.Uncorrelated = true },
	} {
		restsOnNothing(t, name, stale, false)
		restsOnNothing(t, name+", remembered again at once", stale, true)
	}
}

func restsOnNothing(t *testing.T, name string, stale func(*connections.Connection), stubborn bool) {
	t.Run(name, func(t *testing.T) {
		f := newFixture(t)
		f.accounts.stubborn = stubborn
		version := ledger.NewNonce().Version()
		remember := func() {
			c := f.accounts.conn
			c.Version = version
			stale(&c)
			f.accounts.stale = &c
		}
		f.catalog.missing = "nothing@1"
		action := f.fake.SpecValue.Actions["create_thing"]
		action.MarkerFixed = true
		f.fake.SpecValue.Actions["create_thing"] = action
		remember()
		require.Equal(t, "execute", f.succeeds(`{}`, dryRun).Would)
		remember()
		first := f.succeeds(`{}`)
		require.False(t, first.Replayed)
		remember()
		again := f.succeeds(`{}`)
		require.True(t, again.Replayed)
		require.Equal(t, first.Record.ID, again.Record.ID)
		remember()
		require.Equal(t, "replay", f.succeeds(`{}`, dryRun).Would)
		require.Equal(t, 1, f.vendor.sends())
		require.Equal(t, []string{"claimed", "succeeded", "replayed"}, f.events(), "a second look leaves no row")

		remember()
		f.accounts.getErr = connections.ErrNotFound
		f.fails(actions.UnknownConnection, `{}`)
		remember()
		f.fails(actions.UnknownConnection, `{"n":2}`)
		require.Equal(t, 1, f.vendor.sends())
	})
}

func TestACallerThatHangsUpChangesNothing(t *testing.T) {
	f := newFixture(t)
	working, release := f.vendor.stalls()
	ctx, hangUp := context.WithCancel(t.Context())
	out := f.start(ctx, f.request(`{}`))
	receive(t, working)
	hangUp()
	f.fails(actions.InFlight, `{}`)
	release(answered(201, "", `{"ok":1}`))
	require.NoError(t, receive(t, out).err, "the call ran to its end")
	require.Equal(t, dedupe.Succeeded, f.only().State)
	require.True(t, f.succeeds(`{}`).Replayed)
	require.Equal(t, 1, f.vendor.calls())
}

func TestACallerThatHungUpBeforeTheClaimLeavesNoDoubt(t *testing.T) {
	f := newFixture(t)
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	_, err := f.svc.Do(ctx, f.request(`{}`))
	require.NoError(t, err)
	require.Equal(t, dedupe.Succeeded, f.only().State)
}

func TestDryRunsSayWhatWouldHappenAndWriteNothing(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, "execute", f.succeeds(`{}`, dryRun).Would)
	require.Empty(t, f.rows())
	f.succeeds(`{}`, withKey("k"))
	rows := len(f.rows())
	require.Equal(t, "replay", f.succeeds(`{}`, withKey("k"), dryRun).Would)
	require.Equal(t, "key_reused", f.succeeds(`{"n":2}`, withKey("k"), dryRun).Would)
	f.accounts.conn.Paused = true
	f.fails(actions.ConnectionPaused, `{"n":3}`, dryRun)
	require.Len(t, f.rows(), rows)
	f.accounts.conn.Paused = false

	f.vendor.says(answered(422, "", `{}`))
	f.fails(actions.VendorRefused, `{"n":4}`)
	require.Equal(t, "refused", f.succeeds(`{"n":4}`, dryRun).Would)
	f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer})
	f.fails(actions.OutcomeUnknown, `{"n":5}`)
	require.Equal(t, "held", f.succeeds(`{"n":5}`, dryRun).Would)
	require.Equal(t, "held", f.succeeds(`{"n":5}`, withKey("twin"), dryRun).Would)

	working, release := f.vendor.stalls()
	out := f.start(t.Context(), f.request(`{"n":6}`))
	receive(t, working)
	require.Equal(t, "in_flight", f.succeeds(`{"n":6}`, dryRun, withWait(time.Minute)).Would)
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, out).err)
}
