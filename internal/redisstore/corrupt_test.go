package redisstore_test

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
)

func TestWrongTypesAreCorrupt(t *testing.T) {
	s := open(t, redisstore.Options{URL: shared.URL()})
	untouched := func(t *testing.T, scope ledger.Scope, step ledger.Step) {
		t.Helper()
		step.Nonce, step.At = ledger.NewNonce(), s.Now()
		step.Put = append(step.Put, put("x", "one"))
		_, err := s.Apply(t.Context(), scope, step)
		require.ErrorIs(t, err, ledger.ErrCorrupt)
		require.False(t, holds(t, s, scope, key("x")))
	}
	t.Run("value", func(t *testing.T) {
		scope := ledger.ScopeOf(rand.Text())
		raw(t, "LPUSH", valueKey(scope, key("a")), "torn")
		untouched(t, scope, ledger.Step{Expect: []ledger.Expect{{Key: key("a")}}})
		untouched(t, scope, ledger.Step{Expect: []ledger.Expect{{Key: key("a"), Version: ledger.Version{1}}}})
		untouched(t, scope, ledger.Step{Add: []ledger.Add{{Key: key("a"), Delta: 1}}})
		_, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key("a")})
		require.ErrorIs(t, err, ledger.ErrCorrupt)
	})
	t.Run("empty value", func(t *testing.T) {
		scope := ledger.ScopeOf(rand.Text())
		raw(t, "SET", valueKey(scope, key("a")), "")
		untouched(t, scope, ledger.Step{Expect: []ledger.Expect{{Key: key("a")}}})
	})
	t.Run("counter on a value", func(t *testing.T) {
		scope := ledger.ScopeOf(rand.Text())
		apply(t, s, scope, ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Put: []ledger.Put{put("a", "12345678")}})
		untouched(t, scope, ledger.Step{Add: []ledger.Add{{Key: key("a"), Delta: 1}}})
	})
	t.Run("index", func(t *testing.T) {
		scope := ledger.ScopeOf(rand.Text())
		raw(t, "SET", tag(scope)+"#zi", "torn")
		e := []ledger.Entry{{Index: ledger.ByLease, Score: s.Now(), Member: "m"}}
		untouched(t, scope, ledger.Step{Index: e})
		untouched(t, scope, ledger.Step{Unindex: e})
		_, err := s.Entries(t.Context(), scope, ledger.EntryRange{Index: ledger.ByLease, Limit: 1})
		require.ErrorIs(t, err, ledger.ErrCorrupt)
		require.ErrorIs(t, s.Trim(t.Context(), scope, ledger.ByLease, s.Now()), ledger.ErrCorrupt)
	})
	t.Run("rows", func(t *testing.T) {
		scope := ledger.ScopeOf(rand.Text())
		raw(t, "SET", tag(scope)+"#rows", "torn")
		untouched(t, scope, ledger.Step{Rows: [][]byte{[]byte("row")}})
		_, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 1})
		require.ErrorIs(t, err, ledger.ErrCorrupt)
		require.ErrorIs(t, s.TrimRows(t.Context(), scope, "0000000000000001-0000000000000001"), ledger.ErrCorrupt)
	})
	t.Run("row", func(t *testing.T) {
		scope := ledger.ScopeOf(rand.Text())
		raw(t, "XADD", tag(scope)+"#rows", "*", "other", "field")
		_, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 1})
		require.ErrorIs(t, err, ledger.ErrCorrupt)
	})
	t.Run("nonce", func(t *testing.T) {
		for _, torn := range [][]string{{"SET", "torn"}, {"LPUSH", "torn"}, {"SET", "VV"}, {"SET", "A"}} {
			scope := ledger.ScopeOf(rand.Text())
			n := ledger.NewNonce()
			raw(t, torn[0], tag(scope)+"#n"+string(n[:]), torn[1])
			_, err := s.Apply(t.Context(), scope, ledger.Step{Nonce: n, At: s.Now(), Put: []ledger.Put{put("x", "one")}})
			require.ErrorIs(t, err, ledger.ErrCorrupt)
			require.False(t, holds(t, s, scope, key("x")))
			if torn[0] == "LPUSH" {
				untouched(t, scope, ledger.Step{Void: []ledger.Nonce{n}})
			}
		}
	})
}
