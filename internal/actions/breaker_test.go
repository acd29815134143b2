package actions_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/wire"
)

// failing makes the vendor fail this many writes in a row.
func failing(f *fixture, from, n int) {
	f.Helper()
	f.vendor.says(answered(500, "", ""))
	for i := range n {
		f.fails(actions.OutcomeUnknown, fmt.Sprintf(`{"n":%d}`, from+i))
	}
}

func TestAnOpenBreakerReleasesTheClaimAndReplaysGoOn(t *testing.T) {
	f := newFixture(t)
	f.succeeds(`{"done":1}`)
	failing(f, 0, 8)
	calls := f.vendor.calls()
	e := f.fails(actions.NotSent, `{"n":100}`)
	require.Equal(t, "breaker_open", e.Record.Outcome.Reason)
	require.Equal(t, calls, f.vendor.calls())
	require.True(t, f.succeeds(`{"done":1}`).Replayed)
	require.Equal(t, "not_sent", f.events()[len(f.events())-2])
}

// What a vendor had no part in neither opens a breaker nor counts as a success
// that would keep one closed.
func TestOurOwnFailuresTellTheBreakerNothing(t *testing.T) {
	ours := map[string]func(f *fixture){
		"credentials":   func(f *fixture) { f.accounts.credsErr = errBroken },
		"auth":          func(f *fixture) { f.accounts.creds = nil },
		"not permitted": func(f *fixture) { f.vendor.before = func() { f.boot.set(f.boot.now() + lease) } },
		"closed":        func(f *fixture) { f.vendor.says(wire.Exchange{Phase: wire.NotSent, Reason: wire.ReasonClosed}) },
		"panic": func(f *fixture) {
			f.vendor.before = func() { panic("before the permit") }
		},
	}
	for name, broken := range ours {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			creds := f.accounts.creds
			mend := func() {
				f.accounts.creds, f.accounts.credsErr, f.vendor.before, f.vendor.answer = creds, nil, nil, nil
			}
			broken(f)
			for i := range 20 {
				_, err := f.do(f.request(fmt.Sprintf(`{"o":%d}`, i)))
				require.Error(t, err)
			}
			mend()
			f.succeeds(`{"mended":1}`)
			failing(f, 0, 7)
			broken(f)
			_, err := f.do(f.request(`{"between":1}`))
			require.Error(t, err)
			mend()
			failing(f, 7, 1)
			e := f.fails(actions.NotSent, `{"n":100}`)
			require.Equal(t, "breaker_open", e.Record.Outcome.Reason)
		})
	}
}

func TestACallerWhoLeavesDoesNotCountAgainstTheVendor(t *testing.T) {
	f := newFixture(t)
	for i := range 20 {
		working, release := f.vendor.stalls()
		ctx, hangUp := context.WithCancel(t.Context())
		out := f.start(ctx, f.request(fmt.Sprintf(`{"n":%d}`, i)))
		receive(t, working)
		hangUp()
		release(answered(201, "", `{}`))
		require.NoError(t, receive(t, out).err)
	}
	f.vendor.answer = nil
	f.succeeds(`{"n":100}`)
}
