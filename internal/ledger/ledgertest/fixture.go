package ledgertest

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// fixture is a harness, a fresh scope in it and the short words the cases are
// written in.
type fixture struct {
	*testing.T
	Harness
	scope ledger.Scope
}

func newFixture(t *testing.T, h Harness) *fixture {
	require.NotNil(t, h.Store)
	require.NotNil(t, h.Advance)
	require.NotNil(t, h.Reopen)
	require.NotNil(t, h.Corrupt)
	return &fixture{T: t, Harness: h, scope: freshScope()}
}

func freshScope() ledger.Scope { return ledger.ScopeOf(rand.Text()) }

// id returns an id no other case uses, for values in a scope that cases share.
func id(name string) string { return name + "/" + rand.Text() }

func key(id string) ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: id} }

func counter(id string) ledger.Key { return ledger.Key{Kind: ledger.Replays, ID: id} }

func put(k ledger.Key, data string) ledger.Put { return ledger.Put{Key: k, Data: []byte(data)} }

func absent(k ledger.Key) ledger.Expect { return ledger.Expect{Key: k} }

// at says that the key holds the version the step with this nonce wrote.
func at(k ledger.Key, n ledger.Nonce) ledger.Expect {
	return ledger.Expect{Key: k, Version: n.Version()}
}

func fetch(keys ...ledger.Key) []ledger.Fetch {
	out := make([]ledger.Fetch, len(keys))
	for i, k := range keys {
		out[i] = ledger.Fetch{Key: k}
	}
	return out
}

func rows(data ...string) [][]byte {
	out := make([][]byte, len(data))
	for i, d := range data {
		out[i] = []byte(d)
	}
	return out
}

// now asks the store for its time.
func (f *fixture) now() time.Time {
	f.Helper()
	return f.read().Now
}

// advance moves the clock and lets the store notice.
func (f *fixture) advance(d time.Duration) {
	f.Helper()
	before := f.now()
	f.Advance(d)
	require.False(f, f.now().Before(before.Add(d)), "the store's clock follows Advance")
}

// step fills in what every step needs.
func (f *fixture) step(s ledger.Step) ledger.Step {
	f.Helper()
	if s.Nonce == (ledger.Nonce{}) {
		s.Nonce = ledger.NewNonce()
	}
	if s.At.IsZero() {
		s.At = f.now()
	}
	return s
}

func (f *fixture) apply(s ledger.Step) ledger.Result {
	f.Helper()
	res, err := f.Store.Apply(f.Context(), f.scope, f.step(s))
	require.NoError(f, err)
	require.False(f, res.Applied && res.Voided)
	requireMillis(f, res.Now)
	return res
}

// must applies a step that nothing stands against, and returns its nonce.
func (f *fixture) must(s ledger.Step) ledger.Nonce {
	f.Helper()
	s = f.step(s)
	require.True(f, f.apply(s).Applied)
	return s.Nonce
}

// refused applies a step that must not be applied, and returns the answer.
func (f *fixture) refused(s ledger.Step) ledger.Result {
	f.Helper()
	res := f.apply(s)
	require.False(f, res.Applied)
	require.False(f, res.Voided)
	require.Empty(f, res.Counters)
	return res
}

func (f *fixture) read(fs ...ledger.Fetch) ledger.Snapshot {
	f.Helper()
	snap, err := f.Store.Read(f.Context(), f.scope, fs...)
	require.NoError(f, err)
	requireMillis(f, snap.Now)
	return snap
}

func (f *fixture) get(k ledger.Key) (ledger.Value, bool) {
	f.Helper()
	return f.read(ledger.Fetch{Key: k}).Get(k)
}

func (f *fixture) holds(k ledger.Key, data string) {
	f.Helper()
	v, ok := f.get(k)
	require.True(f, ok, "the value exists")
	require.Equal(f, data, string(v.Data))
}

func (f *fixture) lacks(k ledger.Key) {
	f.Helper()
	_, ok := f.get(k)
	require.False(f, ok, "the value does not exist")
}

// countOf reads a counter by adding nothing to it.
func (f *fixture) countOf(k ledger.Key) int64 {
	f.Helper()
	res := f.apply(ledger.Step{Add: []ledger.Add{{Key: k}}})
	require.True(f, res.Applied)
	require.Len(f, res.Counters, 1)
	return res.Counters[0]
}

func (f *fixture) rows(r ledger.RowRange) []ledger.Row {
	f.Helper()
	if r.Limit == 0 {
		r.Limit = 1000
	}
	out, err := f.Store.Rows(f.Context(), f.scope, r)
	require.NoError(f, err)
	require.LessOrEqual(f, len(out), r.Limit)
	return out
}

func (f *fixture) rowData(r ledger.RowRange) []string {
	f.Helper()
	out := []string{}
	for _, row := range f.rows(r) {
		out = append(out, string(row.Data))
	}
	return out
}

// entries lists an index as "member@ms after base" would be tedious to read, so
// it returns members in order; scores are compared where they matter.
func (f *fixture) entries(r ledger.EntryRange) []string {
	f.Helper()
	out := []string{}
	for _, e := range f.entryList(r) {
		out = append(out, e.Member)
	}
	return out
}

func (f *fixture) entryList(r ledger.EntryRange) []ledger.Entry {
	f.Helper()
	if r.Limit == 0 {
		r.Limit = 1000
	}
	out, err := f.Store.Entries(f.Context(), f.scope, r)
	require.NoError(f, err)
	require.LessOrEqual(f, len(out), r.Limit)
	for _, e := range out {
		require.Equal(f, r.Index, e.Index)
		requireMillis(f, e.Score)
	}
	return out
}

// second returns the first whole second at least d from now. Expiry is tested
// on whole seconds, which every driver can keep.
func (f *fixture) second(d time.Duration) time.Time {
	f.Helper()
	return f.now().Add(d).Truncate(time.Second).Add(time.Second)
}

// around walks the store's clock over an instant in steps of a millisecond and
// calls probe on the way. Probe reports the store's time it saw.
func (f *fixture) around(instant time.Time, probe func() time.Time) {
	f.Helper()
	f.Advance(instant.Add(-3 * time.Millisecond).Sub(f.now()))
	before, after := 0, 0
	for after < 3 {
		if now := probe(); now.Before(instant) {
			before++
		} else {
			after++
		}
		f.Advance(time.Millisecond)
	}
	f.Logf("probed %d times before the instant, %d times from it on", before, after)
}

func requireMillis(t require.TestingT, at time.Time) {
	require.Equal(t, at.UnixMilli()*int64(time.Millisecond), at.UnixNano(), "whole milliseconds")
}

func numbered(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%03d", prefix, i)
	}
	return out
}
