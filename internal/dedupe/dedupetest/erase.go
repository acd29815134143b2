package dedupetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// closed is the mark that an erasure stands on.
var closed = ledger.Key{Kind: ledger.Tenant, ID: "/closed"}

// closeScope puts the mark and returns what an erasure and a claim expect of it.
func (f *fixture) closeScope() (erasure, claim ledger.Expect) {
	f.Helper()
	n := ledger.NewNonce()
	res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
		Nonce: n, At: f.Store.Now(), Put: []ledger.Put{{Key: closed, Data: []byte("x")}},
	})
	require.NoError(f, err)
	require.True(f, res.Applied)
	return ledger.Expect{Key: closed, Version: n.Version()}, ledger.Expect{Key: closed}
}

func (f *fixture) erasure(guard ledger.Expect) dedupe.Erasure {
	return dedupe.Erasure{
		Scope: f.scope, Guard: []ledger.Expect{guard},
		Row: func(_ time.Time, writes int) []byte { return fmt.Appendf(nil, "erased %d", writes) },
	}
}

// erase goes on until nothing is left.
func (f *fixture) erase(guard ledger.Expect) {
	f.Helper()
	for range 100 {
		more, err := f.claims.Erase(f.Context(), f.erasure(guard))
		require.NoError(f, err)
		if !more {
			return
		}
	}
	require.Fail(f, "the erasure does not end")
}

// keysOf names everything there ever is of some writes.
func keysOf(requests []request, ids []dedupe.ActionID) []ledger.Fetch {
	var keys []ledger.Fetch
	for _, r := range requests {
		id, finger := r.identity(), r.fingerprint()
		keys = append(keys, ledger.Fetch{Key: ledger.Key{Kind: ledger.Binding, ID: string(id[:])}},
			ledger.Fetch{Key: ledger.Key{Kind: ledger.Twins, ID: string(finger[:])}})
	}
	for _, id := range ids {
		for _, kind := range []ledger.Kind{ledger.Action, ledger.Answer, ledger.Request, ledger.Raw, ledger.Replays} {
			keys = append(keys, ledger.Fetch{Key: ledger.Key{Kind: kind, ID: string(id[:])}})
		}
	}
	return keys
}

// oneOfEach makes writes of every kind there is and returns what they were.
func (f *fixture) oneOfEach() ([]request, []dedupe.ActionID) {
	f.Helper()
	requests := []request{derived("done"), supplied("refused", "r"), derived("doubt"), supplied("twin", "doubt"), derived("free"), derived("running")}
	f.done(requests[0], dedupe.Succeeded, "personal")
	f.wants(dedupe.Replayed, requests[0])
	f.done(requests[1], dedupe.Refused, "")
	h := f.acquire(requests[2])
	st := settlement(dedupe.Held, "")
	st.Raw = []byte("not judged")
	_, err := f.claims.Settle(f.Context(), h, st)
	require.NoError(f, err)
	f.wants(dedupe.Twin, requests[3])
	f.done(requests[4], dedupe.NotDone, "")
	f.acquire(requests[5])
	entries, err := f.Store.Entries(f.Context(), f.scope, ledger.EntryRange{Index: ledger.ByCreated, Limit: 100})
	require.NoError(f, err)
	ids := make([]dedupe.ActionID, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, dedupe.ActionID([]byte(e.Member)))
	}
	require.Len(f, ids, 5)
	return requests, ids
}

func (f *fixture) left(requests []request, ids []dedupe.ActionID) int {
	f.Helper()
	snap, err := f.Store.Read(f.Context(), f.scope, keysOf(requests, ids)...)
	require.NoError(f, err)
	n := len(snap.Values)
	for _, index := range []ledger.Index{ledger.ByCreated, ledger.ByLease, ledger.ByHold, ledger.ByCheck, ledger.ByAlias} {
		n += f.entries(index)
	}
	return n
}

func eraseCases() []testCase {
	return []testCase{
		{"nothing of a write is left but its rows", func(f *fixture) {
			requests, ids := f.oneOfEach()
			rows := f.rows()
			require.Greater(f, f.left(requests, ids), 20)
			guard, _ := f.closeScope()
			f.erase(guard)
			require.Zero(f, f.left(requests, ids))
			require.Equal(f, append(rows, "erased 5", "erased 0"), f.rows())
			f.erase(guard)
			require.Len(f, f.rows(), len(rows)+2, "an erasure of nothing leaves no row")
		}},
		{"goes on where it was cut short", func(f *fixture) {
			for i := range 120 {
				f.done(derived(fmt.Sprint(i)), dedupe.Succeeded, "personal")
			}
			guard, _ := f.closeScope()
			d := newDeaf(f.Store)
			d.lose.Store(true)
			_, err := f.over(d).Erase(f.Context(), f.erasure(guard))
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			require.Equal(f, 20, f.entries(ledger.ByCreated))
			f.erase(guard)
			require.Zero(f, f.entries(ledger.ByCreated))
			require.Equal(f, []string{"erased 100", "erased 20"}, f.lastRows(2))
		}},
		{"of a scope that is open removes nothing", func(f *fixture) {
			requests, ids := f.oneOfEach()
			before, rows := f.left(requests, ids), len(f.rows())
			_, err := f.claims.Erase(f.Context(), f.erasure(ledger.Expect{Key: closed, Version: ledger.Version{1}}))
			require.ErrorIs(f, err, dedupe.ErrGuard)
			require.Equal(f, before, f.left(requests, ids))
			require.Len(f, f.rows(), rows)
		}},
		{"removes what cannot be read", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Succeeded, "personal")
			f.done(derived("b"), dedupe.Succeeded, "personal")
			d := &damaged{Store: f.Store, unreadable: map[ledger.Key]bool{}}
			d.damage(h)
			guard, _ := f.closeScope()
			_, err := f.over(d).Erase(f.Context(), f.erasure(guard))
			require.NoError(f, err)
			require.Zero(f, f.left([]request{derived("b")}, []dedupe.ActionID{h.Record.ID}))
		}},
		{"a call that began before it finds nothing to answer and may claim nothing", func(f *fixture) {
			r := derived("a")
			f.done(r, dedupe.Succeeded, "personal")
			guard, claim := f.closeScope()
			f.erase(guard)
			rows := len(f.rows())
			c := f.newClaim(r)
			c.Guard = []ledger.Expect{claim}
			_, err := f.claims.Claim(f.Context(), c)
			require.ErrorIs(f, err, dedupe.ErrGuard)
			require.Len(f, f.rows(), rows, "the log of a tenant that is gone grows no more")
		}},
		{"a binding to a twin is forgotten by itself, too", func(f *fixture) {
			h := f.acquire(supplied("one", "x"))
			f.wants(dedupe.Twin, supplied("two", "x"))
			f.settle(h, dedupe.Succeeded, "x")
			require.Equal(f, 1, f.entries(ledger.ByAlias))
			f.Advance(window + 2*time.Hour)
			f.sweep()
			require.NoError(f, f.claims.Trim(f.Context(), f.scope))
			require.Zero(f, f.entries(ledger.ByAlias))
		}},
	}
}
