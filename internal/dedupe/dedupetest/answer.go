package dedupetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

func bindingOf(r request) ledger.Key {
	id := r.identity()
	return ledger.Key{Kind: ledger.Binding, ID: string(id[:])}
}

func answerOf(h *dedupe.Handle) ledger.Key {
	return ledger.Key{Kind: ledger.Answer, ID: string(h.Record.ID[:])}
}

func (f *fixture) value(k ledger.Key) ([]byte, bool) {
	f.Helper()
	snap, err := f.Store.Read(f.Context(), f.scope, ledger.Fetch{Key: k})
	require.NoError(f, err)
	v, ok := snap.Get(k)
	return v.Data, ok
}

// put stores what no rule puts there, and forgets what was remembered.
func (f *fixture) put(puts ...ledger.Put) {
	f.Helper()
	res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{Nonce: ledger.NewNonce(), At: f.storeNow(), Put: puts})
	require.NoError(f, err)
	require.True(f, res.Applied)
}

// unreadable insists that a claim, whatever it would have done, does nothing.
func (f *fixture) unreadable(r request) {
	f.Helper()
	rows := f.rows()
	for _, o := range []option{func(*dedupe.Claim) {}, mayNotAcquire, dryRun, retryRefused, allowDuplicate} {
		_, err := f.claims.Claim(f.Context(), f.newClaim(r, o))
		require.ErrorIs(f, err, dedupe.ErrUnreadable)
	}
	require.Equal(f, rows, f.rows())
}

// asBefore stores the answer of a success as earlier releases did: as a value of its
// own, beside a binding that stays for as long as the record.
func (f *fixture) asBefore(r request, h *dedupe.Handle) {
	f.Helper()
	bound, ok := f.value(bindingOf(r))
	require.True(f, ok)
	f.put(ledger.Put{Key: bindingOf(r), Data: bound[:16], Expires: h.Record.Settled.Add(history)},
		ledger.Put{Key: answerOf(h), Data: bound[16:], Expires: h.Record.WindowEnd})
}

// noise is so many bytes that do not compress.
func noise(n int) string {
	raw := make([]byte, n)
	_, _ = rand.Read(raw)
	return string(raw)
}

// between is a store in which something happens before one of its reads.
type between struct {
	ledger.Store
	happens func()
	reads   atomic.Int32
	before  int32 // the read with this number, from 1
}

func (b *between) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	if b.reads.Add(1) == b.before {
		b.happens()
	}
	return b.Store.Read(ctx, scope, fetch...)
}

// keptCases are about where the answer of a success is.
func keptCases() []testCase {
	one, two := supplied("one", "x"), supplied("two", "x")
	return []testCase{
		{"it takes no key of its own", func(f *fixture) {
			h := f.acquire(one)
			f.settle(h, dedupe.Succeeded, "answer")
			_, own := f.value(answerOf(h))
			require.False(f, own)
			bound, _ := f.value(bindingOf(one))
			require.Equal(f, string(h.Record.ID[:])+"\x00answer", string(bound))
			require.Equal(f, "answer", string(f.get(h).Answer))
			require.Equal(f, "answer", string(f.wants(dedupe.Replayed, one, dryRun).Answer))
			require.Equal(f, "answer", string(f.wants(dedupe.Replayed, one, mayNotAcquire).Answer))
		}},
		{"a long one is a value of its own, which nobody reads to see a version", func(f *fixture) {
			for _, n := range []int{4095, 4096, 1 << 20} {
				long := noise(n)
				r, twin := supplied(fmt.Sprint(n), "x"), supplied(fmt.Sprint("twin of ", n), "x")
				h := f.acquire(r)
				f.wants(dedupe.Twin, twin)
				f.settle(h, dedupe.Succeeded, long)
				bound, _ := f.value(bindingOf(r))
				_, own := f.value(answerOf(h))
				require.Equal(f, n == 4095, len(bound) > 16)
				require.Equal(f, n != 4095, own)
				for _, again := range []request{r, twin} {
					f.claims = f.over(f.Store)
					require.Equal(f, long, string(f.wants(dedupe.Replayed, again).Answer))
				}
				require.Equal(f, long, string(f.get(h).Answer))
			}
			r := derived("packs well")
			h := f.acquire(r)
			f.settle(h, dedupe.Succeeded, strings.Repeat("a", 1<<20))
			_, own := f.value(answerOf(h))
			require.False(f, own, "what counts is what is kept")
			f.Advance(window + tick)
			require.Nil(f, f.get(h).Answer)
		}},
		{"it is told until its window ends, and not from then on", func(f *fixture) {
			h := f.acquire(one)
			f.settle(h, dedupe.Succeeded, "answer")
			f.Advance(window - time.Second)
			require.Equal(f, "answer", string(f.get(h).Answer))
			f.Advance(time.Second + tick)
			_, there := f.value(bindingOf(one))
			require.True(f, there, "its bytes stay a little")
			require.Nil(f, f.get(h).Answer)
			f.wants(dedupe.WouldAcquire, one, dryRun)
			f.Advance(time.Hour)
			_, there = f.value(bindingOf(one))
			require.False(f, there)
			require.Nil(f, f.get(h).Answer)
			require.Equal(f, dedupe.Succeeded, f.get(h).Record.State)
			require.Nil(f, f.acquire(one).Record.Previous)
		}},
		{"the next write's answer is not shown as this one's", func(f *fixture) {
			old := f.acquire(one, withWindow(2*time.Hour))
			f.settle(old, dedupe.Succeeded, "first")
			f.Advance(2*time.Hour + tick)
			next := f.acquire(one)
			f.settle(next, dedupe.Succeeded, "second")
			require.Nil(f, f.get(old).Answer)
			require.Equal(f, "second", string(f.get(next).Answer))

			f.claims = f.over(&between{Store: f.Store, before: 2, happens: func() {
				f.Advance(window + tick)
				there := newFixture(f.T, f.Harness)
				there.scope = f.scope
				there.done(one, dedupe.Succeeded, "third")
			}})
			require.Nil(f, f.get(next).Answer, "not even if it becomes another's while it is looked at")
		}},
		{"one that comes at the end of its window outlasts it", func(f *fixture) {
			for _, late := range []time.Duration{-time.Minute, time.Minute} {
				f.claims = f.over(f.Store)
				r := derived(late.String())
				h := f.lost(r, withWindow(2*time.Hour))
				f.Advance(2*time.Hour + late - lease - tick)
				_, err := f.resolve(h, dedupe.Succeeded, "late")
				require.NoError(f, err)
				f.Advance(5 * time.Minute)
				require.Equal(f, "late", string(f.get(h).Answer))
				f.settle(f.acquire(r), dedupe.Succeeded, "another")
				require.Equal(f, "late", string(f.get(h).Answer), "though the identity is another's")
				require.Equal(f, "another", string(f.wants(dedupe.Replayed, r).Answer))
				f.Advance(time.Hour)
				require.Nil(f, f.get(h).Answer)
			}
		}},
		{"a twin finds it at the identity it was written under", func(f *fixture) {
			h := f.acquire(one)
			f.wants(dedupe.Twin, two)
			f.settle(h, dedupe.Succeeded, "answer")
			bound, _ := f.value(bindingOf(two))
			require.Equal(f, string(h.Record.ID[:]), string(bound))
			for _, o := range []option{func(*dedupe.Claim) {}, mayNotAcquire, dryRun} {
				f.claims = f.over(f.Store)
				got := f.wants(dedupe.Replayed, two, o)
				require.Equal(f, h.Record.ID, got.Record.ID)
				require.Equal(f, "answer", string(got.Answer))
			}
			f.Advance(window + tick)
			f.acquire(two)
		}},
		{"a twin whose window ends while it looks", func(f *fixture) {
			h := f.acquire(one)
			f.wants(dedupe.Twin, two)
			f.settle(h, dedupe.Succeeded, "answer")
			f.claims = f.over(&between{Store: f.Store, before: 1, happens: func() { f.Advance(window + tick) }})
			f.acquire(two)
		}},
		{"a twin that becomes another's while it looks", func(f *fixture) {
			h := f.acquire(one)
			f.wants(dedupe.Twin, two)
			f.settle(h, dedupe.Succeeded, "answer")
			f.claims = f.over(&between{Store: f.Store, before: 1, happens: func() {
				f.Advance(window + tick)
				there := newFixture(f.T, f.Harness)
				there.scope = f.scope
				h = there.acquire(supplied("three", "x"))
				there.wants(dedupe.Twin, two)
				there.settle(h, dedupe.Succeeded, "of three")
			}})
			got := f.wants(dedupe.Replayed, two)
			require.Equal(f, h.Record.ID, got.Record.ID)
			require.Equal(f, "of three", string(got.Answer))
		}},
		{"a twin without it is never sent", func(f *fixture) {
			h := f.acquire(one)
			f.wants(dedupe.Twin, two)
			f.settle(h, dedupe.Succeeded, "answer")
			res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{Nonce: ledger.NewNonce(), At: f.storeNow(), Delete: []ledger.Key{bindingOf(one)}})
			require.NoError(f, err)
			require.True(f, res.Applied)
			f.unreadable(two)
			require.Nil(f, f.get(h).Answer)
		}},
		{"a binding that is not as it was written is never sent", func(f *fixture) {
			h := f.acquire(one)
			f.settle(h, dedupe.Succeeded, "answer")
			id := string(h.Record.ID[:])
			for _, data := range []string{"", id[:15], id, id + "\x02answer", id + "\x01answer", "0123456789abcdef\x00answer"} {
				f.put(ledger.Put{Key: bindingOf(one), Data: []byte(data)})
				f.unreadable(one)
			}
		}},
		{"an answer that nothing can have told is never told", func(f *fixture) {
			for _, state := range []dedupe.State{dedupe.InFlight, dedupe.Held, dedupe.Refused} {
				r := derived(state.String())
				h := f.acquire(r)
				if state != dedupe.InFlight {
					f.settle(h, state, "")
				}
				f.put(ledger.Put{Key: bindingOf(r), Data: append(h.Record.ID[:], "\x00answer"...)})
				f.unreadable(r)
				require.Nil(f, f.get(h).Answer)
			}
			h := f.acquire(one)
			f.wants(dedupe.Twin, two)
			f.settle(h, dedupe.Succeeded, "answer")
			f.put(ledger.Put{Key: bindingOf(two), Data: append(h.Record.ID[:], "\x00another"...)})
			f.unreadable(two)
		}},
		{"one that an earlier release kept is replayed until it ends", func(f *fixture) {
			h := f.acquire(one)
			f.wants(dedupe.Twin, two)
			f.settle(h, dedupe.Succeeded, "answer")
			f.asBefore(one, h)
			for _, r := range []request{one, two} {
				f.claims = f.over(f.Store)
				require.Equal(f, "answer", string(f.wants(dedupe.Replayed, r).Answer))
				require.Equal(f, "answer", string(f.recalls(r).Answer))
			}
			require.Equal(f, "answer", string(f.get(h).Answer))
			f.Advance(window + tick)
			require.Nil(f, f.get(h).Answer)
			require.Nil(f, f.acquire(one).Record.Previous)
			f.wants(dedupe.Twin, two)
		}},
		{"one that an earlier release kept, and lost, is never sent", func(f *fixture) {
			h := f.acquire(one)
			f.settle(h, dedupe.Succeeded, "answer")
			f.asBefore(one, h)
			res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{Nonce: ledger.NewNonce(), At: f.storeNow(), Delete: []ledger.Key{answerOf(h)}})
			require.NoError(f, err)
			require.True(f, res.Applied)
			f.unreadable(one)
		}},
	}
}
