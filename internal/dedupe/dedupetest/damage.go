package dedupetest

import (
	"context"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// damaged is a store that cannot read the records of some actions.
type damaged struct {
	ledger.Store
	unreadable map[ledger.Key]bool
}

func (d *damaged) damage(h *dedupe.Handle) {
	d.unreadable[ledger.Key{Kind: ledger.Action, ID: string(h.Record.ID[:])}] = true
}

func (d *damaged) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	for _, f := range fetch {
		if d.unreadable[f.Key] {
			return ledger.Snapshot{}, fmt.Errorf("read value: %w", ledger.ErrCorrupt)
		}
	}
	return d.Store.Read(ctx, scope, fetch...)
}

// damageCases: a record that cannot be read stands in nobody else's way.
func damageCases() []testCase {
	return []testCase{
		{"does not keep the sweep from the rest", func(f *fixture) {
			f.pastDamage(1)
		}},
		{"does not fill the sweep's batches", func(f *fixture) {
			f.pastDamage(260)
		}},
		{"a binding whose record is gone is never sent again", func(f *fixture) {
			for i, state := range []dedupe.State{dedupe.InFlight, dedupe.Held, dedupe.Succeeded} {
				r := derived(fmt.Sprint(i))
				h := f.acquire(r)
				if state != dedupe.InFlight {
					f.settle(h, state, "x")
				}
				res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
					Nonce: ledger.NewNonce(), At: f.Store.Now(),
					Delete: []ledger.Key{{Kind: ledger.Action, ID: string(h.Record.ID[:])}},
				})
				require.NoError(f, err)
				require.True(f, res.Applied)
				_, err = f.claims.Claim(f.Context(), f.newClaim(r))
				require.ErrorIs(f, err, dedupe.ErrUnreadable, state)
			}
		}},
		{"the record of a write outlives the identities of its twins", func(f *fixture) {
			// With a window longer than the history nothing else keeps the record.
			const long = history + 24*time.Hour
			first := f.acquire(supplied("a", "x"), withWindow(long))
			f.wants(dedupe.Twin, supplied("b", "x"))
			f.settle(first, dedupe.Succeeded, "x")
			f.Advance(long + tick)
			f.wants(dedupe.Acquired, supplied("b", "x"))
		}},
	}
}

// pastDamage sweeps a scope in which a lost write stands behind n records that
// cannot be read.
func (f *fixture) pastDamage(n int) {
	f.Helper()
	d := &damaged{Store: f.Store, unreadable: map[ledger.Key]bool{}}
	for i := range n {
		d.damage(f.acquire(derived(fmt.Sprint(i))))
	}
	f.Advance(tick)
	behind := f.acquire(derived("behind"))
	f.Advance(lease + tick)
	_, err := f.Store.Read(f.Context(), f.scope) // let the client's clock catch up
	require.NoError(f, err)
	moved, err := f.over(d).Sweep(f.Context(), f.scope, scribe)
	require.NoError(f, err)
	require.Equal(f, dedupe.Swept{Held: 1}, moved)
	require.Equal(f, dedupe.Held, f.get(behind).Record.State)
}
