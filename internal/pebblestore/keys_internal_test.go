package pebblestore

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

func FuzzEnvelope(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendValue(nil, ledger.Version{1}, 0, nil))
	f.Add(appendValue(nil, ledger.Version{1, 2, 3}, 1<<40, []byte("data")))
	f.Add(appendCounter(nil, 1<<40, -5))
	f.Add(appendCounter(nil, 0, 0)[:16])
	f.Add([]byte{3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := decodeEnvelope(raw)
		if err != nil {
			require.ErrorIs(t, err, ledger.ErrCorrupt)
			return
		}
		again := appendValue(nil, e.version, e.expires, e.data)
		if e.counter {
			again = appendCounter(nil, e.expires, e.sum)
		}
		require.Equal(t, raw, again, "what is read is what an encoder writes")
	})
}

func FuzzCursor(f *testing.F) {
	f.Add(rowCursor(rowKey(ledger.Platform, 1, 2)))
	f.Add("")
	f.Add(strings.Repeat("F", 32))
	f.Add(strings.Repeat("f", 31))
	f.Fuzz(func(t *testing.T, cursor string) {
		scope := ledger.ScopeOf("acme")
		key, ok := cursorKey(scope, cursor)
		if !ok {
			return
		}
		require.Equal(t, cursor, rowCursor(key))
		require.True(t, bytes.HasPrefix(key, rowPrefix(scope)), "a cursor names a row of its scope")
	})
}

func FuzzNote(f *testing.F) {
	scope := ledger.ScopeOf("acme")
	one := valueKey(scope, ledger.Key{Kind: ledger.Answer, ID: "x"})
	other := valueKey(scope, ledger.Key{Kind: ledger.Binding, ID: strings.Repeat("y", maxID)})
	var d draft
	d.add(one)
	f.Add(noteKey(5, scope, ledger.Version{1}), d.list)
	d.add(other)
	f.Add(noteKey(-5, ledger.Platform, ledger.Version{2}), d.list)
	f.Add(noteKey(5, scope, ledger.Version{1}), []byte{'a', 2, 1})
	f.Add(noteKey(5, scope, ledger.Version{1})[:20], d.list)
	f.Add(append(appendMillis([]byte{tagExpiry}, 5), one...), []byte{})
	f.Add([]byte{tagExpiry}, []byte{})
	f.Add(bytes.Repeat([]byte{tagScope}, 40), []byte{})
	f.Fuzz(func(t *testing.T, key, list []byte) {
		n, ok := parseNote(key, list)
		if !ok {
			return
		}
		d := draft{expires: n.expires}
		for _, value := range n.values {
			require.True(t, bytes.HasPrefix(value, scoped(n.scope, tagValue, 0)), "it names values of its scope and nothing else")
			require.Greater(t, len(value), scopeLength)
			if len(list) > 0 {
				d.add(value)
			}
		}
		require.Equal(t, string(list), string(d.list))
		if len(list) == 0 {
			require.Len(t, n.values, 1)
			require.Equal(t, key, append(appendMillis([]byte{tagExpiry}, n.expires), n.values[0]...))
			return
		}
		var v ledger.Version
		copy(v[:], key[len(key)-len(v):])
		require.Equal(t, key, noteKey(n.expires, n.scope, v))
	})
}

// FuzzIndexOrder checks that keys sort as (score, member) do, and that a range
// of one index holds nothing of its neighbours.
func FuzzIndexOrder(f *testing.F) {
	f.Add(int64(0), "", int64(-1), "\xff")
	f.Add(int64(255), "a", int64(256), "")
	f.Add(int64(7), "a\x00", int64(7), "a")
	f.Add(int64(7), "\xff\xff", int64(7), "\xff")
	f.Fuzz(func(t *testing.T, s1 int64, m1 string, s2 int64, m2 string) {
		scope := ledger.ScopeOf("acme")
		k1 := indexKey(scope, ledger.ByHold, s1, m1)
		k2 := indexKey(scope, ledger.ByHold, s2, m2)
		want := cmp.Or(cmp.Compare(s1, s2), cmp.Compare(m1, m2))
		require.Equal(t, want, bytes.Compare(k1, k2))

		prefix := indexPrefix(scope, ledger.ByHold)
		end := prefixEnd(prefix)
		require.True(t, bytes.Compare(prefix, k1) < 0 && bytes.Compare(k1, end) < 0)
		other := indexKey(scope, ledger.ByHold+1, s2, m2)
		require.False(t, bytes.Compare(prefix, other) <= 0 && bytes.Compare(other, end) < 0)
	})
}

func TestPrefixEndCarries(t *testing.T) {
	require.Equal(t, []byte{2}, prefixEnd([]byte{1, 0xff, 0xff}))
	require.Equal(t, []byte{1, 3}, prefixEnd([]byte{1, 2}))
	p := []byte{1, 2}
	prefixEnd(p)
	require.Equal(t, []byte{1, 2}, p)
}

func TestCeilMillis(t *testing.T) {
	at := time.UnixMilli(1000)
	require.Equal(t, int64(1000), ceilMillis(at))
	require.Equal(t, int64(1001), ceilMillis(at.Add(1)))
	require.Equal(t, int64(1001), ceilMillis(at.Add(time.Millisecond)))
	require.Equal(t, int64(0), ceilMillis(time.Unix(0, -1)))
	require.Equal(t, int64(-1), ceilMillis(time.UnixMilli(-1)))
}

func TestExpiryOfTheEpochIsNotNever(t *testing.T) {
	require.Equal(t, int64(1), expiry(time.UnixMilli(0)), "the epoch is not never")
	require.Equal(t, int64(0), expiry(time.Time{}))
}

func TestTailsAreBounded(t *testing.T) {
	var st stripe
	st.init(nil)
	for i := range 10 * tailsPerStripe {
		scope := ledger.Scope{byte(i), byte(i >> 8)}
		st.remember(scope, uint64(i))
		require.Equal(t, uint64(i), st.tails[scope])
		require.LessOrEqual(t, len(st.tails), tailsPerStripe)
	}
	for scope := range st.tails {
		st.remember(scope, 7)
	}
	require.Len(t, st.tails, tailsPerStripe, "a known scope needs no room")
}

func TestTheEngineSpellsNoKey(t *testing.T) {
	c := discreetComparer()
	require.Equal(t, "(key of 6 bytes)", fmt.Sprint(c.FormatKey([]byte("secret"))))
	require.Equal(t, pebble.DefaultComparer.Name, c.Name)
}
