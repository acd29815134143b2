package dedupetest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// recalls insists that a replay is answered from memory, and forgotten that it is not.
func (f *fixture) recalls(r request, opts ...option) dedupe.Claimed {
	f.Helper()
	got, known, err := f.claims.Replay(f.Context(), f.newClaim(r, opts...))
	require.NoError(f, err)
	require.True(f, known)
	require.Equal(f, dedupe.Replayed, got.Verdict)
	require.Nil(f, got.Handle)
	return got
}

func (f *fixture) forgotten(r request, opts ...option) {
	f.Helper()
	before := f.rows()
	got, known, err := f.claims.Replay(f.Context(), f.newClaim(r, opts...))
	require.NoError(f, err)
	require.False(f, known)
	require.Empty(f, got)
	require.Equal(f, before, f.rows())
}

// replayCases are about writes that are remembered: a second client of the store,
// which another replica is, may change what the first remembers.
func replayCases() []testCase {
	return []testCase{
		{"of a write that was settled here", func(f *fixture) {
			f.forgotten(derived("a"))
			h := f.acquire(derived("a"))
			f.forgotten(derived("a"))
			rec := f.settle(h, dedupe.Succeeded, "answer")
			got := f.recalls(derived("a"))
			require.Equal(f, rec, got.Record)
			require.Equal(f, "answer", string(got.Answer))
			require.Equal(f, int64(1), got.Replays)
			read := f.wants(dedupe.Replayed, derived("a"))
			require.Equal(f, int64(2), read.Replays)
			require.Equal(f, read.Record, got.Record, "what is remembered is what is read")
			require.Equal(f, read.Answer, got.Answer)
			require.Equal(f, int64(3), f.recalls(derived("a"), mayNotAcquire).Replays)
			require.Equal(f, []string{"claimed in_flight", "succeeded succeeded", "replayed succeeded", "replayed succeeded", "replayed succeeded"}, f.rows())
		}},
		{"of a write that was settled elsewhere, once it was replayed here", func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, "answer")
			f.claims = f.over(f.Store)
			f.forgotten(derived("a"))
			f.wants(dedupe.Replayed, derived("a"))
			require.Equal(f, "answer", string(f.recalls(derived("a")).Answer))
		}},
		{"of a refusal, unless it is to be run again", func(f *fixture) {
			f.done(derived("a"), dedupe.Refused, "")
			require.Equal(f, dedupe.Refused, f.recalls(derived("a")).Record.State)
			f.forgotten(derived("a"), retryRefused)
			f.settle(f.acquire(derived("a"), retryRefused), dedupe.Succeeded, "now")
			require.Equal(f, "now", string(f.recalls(derived("a"), retryRefused).Answer))
		}},
		{"never of a held, released or unsettled write", func(f *fixture) {
			f.done(derived("h"), dedupe.Held, "")
			f.done(derived("n"), dedupe.NotDone, "")
			f.forgotten(derived("h"))
			f.forgotten(derived("n"))
		}},
		{"never under another request's key, nor of a dry run", func(f *fixture) {
			f.done(supplied("k", "a"), dedupe.Succeeded, "x")
			f.forgotten(supplied("k", "b"))
			f.forgotten(supplied("k", "a"), dryRun)
			f.recalls(supplied("k", "a"))
		}},
		{"not after its window", func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, "x")
			f.Advance(window + tick)
			f.forgotten(derived("a"))
			f.acquire(derived("a"))
		}},
		{"not of what was run again elsewhere", func(f *fixture) {
			f.done(derived("a"), dedupe.Refused, "")
			here := f.claims
			f.claims = f.over(f.Store)
			h := f.acquire(derived("a"), retryRefused)
			there := f.claims
			f.claims = here
			f.forgotten(derived("a"))
			f.wants(dedupe.Busy, derived("a"))
			f.claims = there
			f.settle(h, dedupe.Succeeded, "x")
			f.claims = here
			require.Equal(f, "x", string(f.wants(dedupe.Replayed, derived("a")).Answer))
			require.Equal(f, "x", string(f.recalls(derived("a")).Answer))
		}},
		{"not without its basis", func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, "x")
			f.forgotten(derived("a"), func(c *dedupe.Claim) {
				c.Basis = []ledger.Expect{{Key: ledger.Key{Kind: ledger.Connection, ID: "billing"}, Version: ledger.NewNonce().Version()}}
			})
		}},
		{"not of what was erased", func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, "x")
			erasure, _ := f.closeScope()
			f.erase(erasure)
			f.forgotten(derived("a"))
		}},
		{"not of a large answer, which is read", func(f *fixture) {
			large := strings.Repeat("x", 64<<10)
			f.done(derived("a"), dedupe.Succeeded, large)
			f.forgotten(derived("a"))
			require.Equal(f, large, string(f.wants(dedupe.Replayed, derived("a")).Answer))
			f.forgotten(derived("a"))
		}},
		{"of a twin's outcome", func(f *fixture) {
			h := f.acquire(supplied("k1", "a"))
			f.wants(dedupe.Twin, supplied("k2", "a"))
			f.settle(h, dedupe.Succeeded, "answer")
			f.forgotten(supplied("k2", "a"))
			f.wants(dedupe.Replayed, supplied("k2", "a"))
			require.Equal(f, h.Record.ID, f.recalls(supplied("k2", "a")).Record.ID)
		}},
		{"not told without the store", func(f *fixture) {
			store := newDeaf(f.Store)
			f.claims = f.over(store)
			f.done(derived("a"), dedupe.Succeeded, "x")
			store.lose.Store(true)
			_, known, err := f.claims.Replay(f.Context(), f.newClaim(derived("a")))
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			require.False(f, known)
			require.Equal(f, int64(2), f.recalls(derived("a")).Replays, "the first was counted, though nobody was told")
		}},
	}
}
