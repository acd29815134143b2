package redisstore_test

import (
	"crypto/rand"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

func TestScriptFlush(t *testing.T) {
	modes(t, func(t *testing.T, opts redisstore.Options) {
		s := open(t, opts)
		scope := ledger.ScopeOf(rand.Text())
		for _, id := range []string{"first", "second"} {
			step := claim(s, id)
			require.True(t, apply(t, s, scope, step).Applied)
			raw(t, "SCRIPT", "FLUSH")
			require.True(t, apply(t, s, scope, step).Applied, "a repeat")
			raw(t, "SCRIPT", "FLUSH")
			require.True(t, holds(t, s, scope, step.Put[0].Key))
		}
		require.Len(t, rowsOf(t, s, scope), 2)
	})
}

func TestTwoClientsContendForOneClaim(t *testing.T) {
	modes(t, func(t *testing.T, opts redisstore.Options) {
		clients := []*redisstore.Store{open(t, opts), open(t, opts)}
		scope := ledger.ScopeOf(rand.Text())
		const callers = 64
		var mu sync.Mutex
		var wg sync.WaitGroup
		applied, refused := 0, 0
		for i := range callers {
			wg.Go(func() {
				s := clients[i%len(clients)]
				res, err := s.Apply(t.Context(), scope, claim(s, "0123456789abcdef"))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && res.Applied:
					applied++
				case err == nil && len(res.Values) == 1:
					refused++
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, applied)
		require.Equal(t, callers-1, refused, "and each loser is shown the winner")
		require.Len(t, rowsOf(t, clients[0], scope), 1)
	})
}

func TestFullMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, redisstore.Options{URL: server.URL()})
	scope := ledger.ScopeOf("tenant")
	first := claim(s, "first")
	require.True(t, apply(t, s, scope, first).Applied)
	lost := claim(s, "lost")

	_, err := server.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1")
	require.NoError(t, err)

	t.Run("a claim is refused, whole", func(t *testing.T) {
		second := claim(s, "second")
		_, err := s.Apply(t.Context(), scope, second)
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.ErrorContains(t, err, "OOM")
		require.False(t, holds(t, s, scope, second.Put[0].Key))
	})
	t.Run("an identity bound anew is refused, whole", func(t *testing.T) {
		binding := first.Put[0].Key
		_, err := s.Apply(t.Context(), scope, ledger.Step{
			Nonce: ledger.NewNonce(), At: s.Now(), Expect: []ledger.Expect{{Key: binding, Version: first.Nonce.Version()}},
			Put: []ledger.Put{{Key: binding, Data: []byte("another")}},
		})
		require.ErrorContains(t, err, "OOM")
	})
	t.Run("what only records is refused", func(t *testing.T) {
		_, err := s.Apply(t.Context(), scope, ledger.Step{
			Nonce: ledger.NewNonce(), At: s.Now(), Rows: [][]byte{[]byte("row")},
			Add: []ledger.Add{{Key: key("n"), Delta: 1}},
		})
		require.ErrorIs(t, err, ledger.ErrUnavailable)
	})
	t.Run("a settle goes through", func(t *testing.T) {
		action := first.Put[1].Key
		settle := ledger.Step{
			Nonce:   ledger.NewNonce(),
			At:      s.Now(),
			Expect:  []ledger.Expect{{Key: action, Version: first.Nonce.Version()}},
			Put:     []ledger.Put{{Key: action, Data: []byte("settled")}, {Key: ledger.Key{Kind: ledger.Answer, ID: "first"}, Data: []byte("answer")}, {Key: first.Put[0].Key, Data: first.Put[0].Data, Expires: s.Now().Add(time.Hour)}},
			Delete:  []ledger.Key{{Kind: ledger.Request, ID: "first"}},
			Unindex: first.Index[:1],
			Rows:    [][]byte{[]byte("settled")},
		}
		require.True(t, apply(t, s, scope, settle).Applied)
	})
	t.Run("a claim can be given up", func(t *testing.T) {
		res := apply(t, s, scope, ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Void: []ledger.Nonce{lost.Nonce}})
		require.True(t, res.Applied)
	})
	t.Run("indexes can be read and trimmed", func(t *testing.T) {
		require.NoError(t, s.Trim(t.Context(), scope, ledger.ByCreated, s.Now().Add(time.Hour)))
		entries, err := s.Entries(t.Context(), scope, ledger.EntryRange{Index: ledger.ByCreated, Limit: 10})
		require.NoError(t, err)
		require.Empty(t, entries)
		require.Equal(t, []string{"row of first", "settled"}, rowsOf(t, s, scope))
	})
	t.Run("rows can be trimmed", func(t *testing.T) {
		rows, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 1})
		require.NoError(t, err)
		require.NoError(t, s.TrimRows(t.Context(), scope, rows[0].Cursor))
		require.Equal(t, []string{"settled"}, rowsOf(t, s, scope))
	})

	_, err = server.Do(t.Context(), "CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, err)
	require.True(t, apply(t, s, scope, lost).Voided)
	require.True(t, apply(t, s, scope, claim(s, "third")).Applied)
}

func TestReplicaIsNeitherWrittenNorRead(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, opts redisstore.Options) {
		t.Parallel()
		server := redistest.Start(t)
		opts.URL = server.URL()
		s := open(t, opts)
		scope := ledger.ScopeOf("tenant")
		require.True(t, apply(t, s, scope, claim(s, "first")).Applied)

		_, err := server.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1")
		require.NoError(t, err)
		everyCallIs(t, s, scope, ledger.ErrUnavailable, "READONLY")
		require.ErrorIs(t, s.Ready(t.Context()), ledger.ErrNotReady)

		_, err = server.Do(t.Context(), "REPLICAOF", "NO", "ONE")
		require.NoError(t, err)
		require.True(t, apply(t, s, scope, claim(s, "second")).Applied)
	})
}

// everyCallIs checks that each call of the contract ends in the error.
func everyCallIs(t *testing.T, s ledger.Store, scope ledger.Scope, want error, text string) {
	t.Helper()
	calls := map[string]func() error{
		"apply": func() error {
			res, err := s.Apply(t.Context(), scope, claim(s, "another"))
			require.Zero(t, res)
			return err
		},
		"read": func() error {
			snap, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key("a")})
			require.Zero(t, snap)
			return err
		},
		"entries": func() error {
			got, err := s.Entries(t.Context(), scope, ledger.EntryRange{Index: ledger.ByCreated, Limit: 1})
			require.Empty(t, got)
			return err
		},
		"rows": func() error {
			got, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 1})
			require.Empty(t, got)
			return err
		},
		"trim": func() error {
			return s.Trim(t.Context(), scope, ledger.ByLease, time.Now())
		},
		"trim rows": func() error {
			return s.TrimRows(t.Context(), scope, "0000000000000001-0000000000000001")
		},
	}
	for name, run := range calls {
		err := run()
		require.ErrorIs(t, err, want, name)
		require.ErrorContains(t, err, text, name)
	}
}

// A server whose clock was set back must go on logging, in order.
func TestRowsWhenTheClockGoesBack(t *testing.T) {
	opts, advance := shiftable(redisstore.Options{URL: shared.URL()})
	s := open(t, opts)
	scope := ledger.ScopeOf(rand.Text())
	record := func(text string) {
		snap, err := s.Read(t.Context(), scope)
		require.NoError(t, err)
		res := apply(t, s, scope, ledger.Step{Nonce: ledger.NewNonce(), At: snap.Now, Rows: [][]byte{[]byte(text)}})
		require.True(t, res.Applied)
	}
	record("one")
	advance(-time.Hour)
	record("two")
	record("three")
	advance(2 * time.Hour)
	record("four")

	rows, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 4)
	for i, want := range []string{"one", "two", "three", "four"} {
		require.Equal(t, want, string(rows[i].Data))
		if i > 0 {
			require.Less(t, rows[i-1].Cursor, rows[i].Cursor)
			require.False(t, rows[i].At.Before(rows[i-1].At))
		}
	}
}

func TestWhatExpiresLeavesTheServer(t *testing.T) {
	s := open(t, redisstore.Options{URL: shared.URL()})
	scope := ledger.ScopeOf(rand.Text())
	expires := s.Now().Add(time.Hour)
	step := ledger.Step{
		Nonce: ledger.NewNonce(), At: s.Now(),
		Put: []ledger.Put{{Key: key("a"), Data: []byte("one"), Expires: expires}, put("forever", "one"),
			{Key: key("over"), Data: []byte("one"), Expires: s.Now().Add(-time.Hour)}},
		Add:  []ledger.Add{{Key: key("n"), Delta: 1, Expires: expires}},
		Void: []ledger.Nonce{{1}},
	}
	require.True(t, apply(t, s, scope, step).Applied)
	for k, want := range map[string]time.Duration{
		valueKey(scope, key("a")): time.Hour, valueKey(scope, key("n")): time.Hour,
		tag(scope) + "#n" + string(step.Nonce[:]):   ledger.NonceLife,
		tag(scope) + "#n" + string(step.Void[0][:]): ledger.VoidLife,
	} {
		left, err := time.ParseDuration(raw(t, "PTTL", k) + "ms")
		require.NoError(t, err)
		require.InDelta(t, want.Seconds(), left.Seconds(), 5, k)
	}
	require.Equal(t, "-1", raw(t, "PTTL", valueKey(scope, key("forever"))))
	require.Equal(t, "0", raw(t, "EXISTS", valueKey(scope, key("over"))))
}

func TestCountersKeepTheirBits(t *testing.T) {
	s := open(t, redisstore.Options{URL: shared.URL()})
	scope := ledger.ScopeOf(rand.Text())
	add := func(id string, deltas ...int64) ledger.Step {
		step := ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Put: []ledger.Put{put("x of "+id, "one")}}
		for _, d := range deltas {
			step.Add = append(step.Add, ledger.Add{Key: key(id), Delta: d})
		}
		return step
	}
	for _, deltas := range [][]int64{
		{math.MaxInt64, math.MinInt64, 1}, {-1, 1, -1}, {1<<53 + 1, 1}, {1<<32 - 1, 1, -1}, {math.MinInt64, 0, 1}, {-1 << 32, -1},
	} {
		id, sum := rand.Text(), int64(0)
		want := []int64{}
		for _, d := range deltas {
			sum += d
			want = append(want, sum)
		}
		require.Equal(t, want, apply(t, s, scope, add(id, deltas...)).Counters)
	}
	for _, deltas := range [][]int64{{math.MaxInt64, 1}, {math.MinInt64, -1}, {math.MaxInt64, math.MaxInt64}, {math.MinInt64, math.MinInt64}} {
		id := rand.Text()
		_, err := s.Apply(t.Context(), scope, add(id, deltas...))
		require.ErrorContains(t, err, "overflow")
		require.NotErrorIs(t, err, ledger.ErrUnavailable)
		require.False(t, holds(t, s, scope, key("x of "+id)))
		require.False(t, holds(t, s, scope, key(id)))
	}
}
