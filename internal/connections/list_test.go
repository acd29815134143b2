package connections_test

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
)

// names pages through a listing.
func (f *fixture) names(limit int) (names []string, pages int) {
	f.Helper()
	for cursor := ""; ; pages++ {
		page, next, err := f.List(f.Context(), f.tenant, cursor, limit)
		require.NoError(f, err)
		require.LessOrEqual(f, len(page), limit)
		for _, c := range page {
			require.Equal(f, f.get(c.Name), c)
			names = append(names, c.Name)
		}
		if next == "" {
			return names, pages + 1
		}
		cursor = next
	}
}

func TestListPages(t *testing.T) {
	f := newFixture(t)
	names, pages := f.names(10)
	require.Empty(t, names)
	require.Equal(t, 1, pages)

	var want []string
	for i := range 6 {
		name := fmt.Sprintf("c%d", 9-i) // by creation, not by name
		want = append(want, name)
		f.put(name, stripe())
		f.clock.Add(int64(time.Millisecond))
	}
	for limit, pagesWanted := range map[int]int{1: 6, 2: 3, 3: 2, 4: 2, 5: 2, 6: 1, 7: 1, connections.MaxPage: 1} {
		names, pages := f.names(limit)
		require.Equal(t, want, names, "limit %d", limit)
		require.Equal(t, pagesWanted, pages, "limit %d: no cursor on the last page", limit)
	}
}

func TestListShowsPausedAndClosingOnes(t *testing.T) {
	f, _ := stuck(t)
	f.put("paused", connections.Spec{Connector: "x@1", Paused: on(true)})
	names, _ := f.names(10)
	require.Equal(t, []string{"billing", "paused"}, names)
}

// The index is shared with other named things.
func TestListPassesOverOthers(t *testing.T) {
	f := newFixture(t)
	other := func(n int) {
		step := ledger.Step{Nonce: ledger.NewNonce(), At: f.store.Now()}
		for i := range 250 {
			step.Index = append(step.Index, ledger.Entry{Index: ledger.ByName, Score: f.store.Now(), Member: fmt.Sprintf("key%d-%d", n, i)})
		}
		res, err := f.store.Apply(t.Context(), f.tenant, step)
		require.NoError(t, err)
		require.True(t, res.Applied)
	}
	for i, name := range []string{"a", "b", "c"} {
		other(i)
		f.clock.Add(int64(time.Millisecond))
		f.put(name, stripe())
		f.clock.Add(int64(time.Millisecond))
	}
	other(3)
	for _, limit := range []int{1, 2, 3, 4} {
		names, pages := f.names(limit)
		require.Equal(t, []string{"a", "b", "c"}, names)
		require.Equal(t, (3+limit-1)/limit, pages)
	}
}

// A connection made again between the two reads of a page has a new place.
func TestListDoesNotShowAnOldPlace(t *testing.T) {
	f := newFixture(t)
	first := f.put("a", stripe())
	old := ledger.Entry{Index: ledger.ByName, Score: first.CreatedAt, Member: "c/a"}
	f.clock.Add(int64(time.Second))
	require.NoError(t, f.delete("a", settled))
	second := f.put("a", stripe())
	names, _ := f.names(10)
	require.Equal(t, []string{"a"}, names)

	// An entry without its connection is what a reader sees that came in between.
	f.put("b", stripe())
	res, err := f.store.Apply(t.Context(), f.tenant, ledger.Step{
		Nonce: ledger.NewNonce(), At: f.store.Now(),
		Unindex: []ledger.Entry{{Index: ledger.ByName, Score: second.CreatedAt, Member: "c/a"}},
		Index:   []ledger.Entry{old, {Index: ledger.ByName, Score: first.CreatedAt, Member: "c/gone"}},
	})
	require.NoError(t, err)
	require.True(t, res.Applied)
	names, _ = f.names(10)
	require.Equal(t, []string{"b"}, names)
}

func TestListRefuses(t *testing.T) {
	f := newFixture(t)
	for _, limit := range []int{-1, 0, connections.MaxPage + 1} {
		_, _, err := f.List(t.Context(), f.tenant, "", limit)
		require.ErrorIs(t, err, connections.ErrLimit)
	}
	for _, cursor := range []string{"x", "!", "AAAA", base64.RawURLEncoding.EncodeToString(make([]byte, 8)),
		base64.RawURLEncoding.EncodeToString(make([]byte, 300)), "__________9j", "AAAAAAAAAABj\nL2E"} {
		_, _, err := f.List(t.Context(), f.tenant, cursor, 1)
		require.ErrorIs(t, err, connections.ErrCursor, cursor)
	}
}
