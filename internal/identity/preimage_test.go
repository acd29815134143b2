package identity

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

// These tests need the inside: what is hashed, not only its hash.

// fields is tag, tenant, connection, action, and body or key.
type fields [5]string

func (f fields) build() (text []byte, length int) {
	text, length = preimage(nil, Input{TenantID: f[1], ConnectionID: f[2], Action: f[3]}, f[0])
	return append(text, f[4]...), length
}

func (f fields) digest() Identity { return digest(f.build()) }

// preimage is what digest hashes.
func (f fields) preimage() []byte {
	text, length := f.build()
	_ = digest(text, length) // writes the length of the last field
	return text
}

// parse is the inverse. That there is one proves that no two requests are
// hashed alike.
func parse(t *testing.T, preimage []byte) fields {
	t.Helper()
	var f fields
	for i := range f {
		require.GreaterOrEqual(t, len(preimage), 8)
		n := binary.BigEndian.Uint64(preimage)
		require.LessOrEqual(t, n, uint64(len(preimage)-8))
		f[i], preimage = string(preimage[8:8+n]), preimage[8+n:]
	}
	require.Empty(t, preimage)
	return f
}

// For every pair of fields, both ways: a byte taken from the end of one and put
// at the start, or the end, of the other is another request. So is a field
// that swallowed its neighbour.
func TestEveryPairOfFields(t *testing.T) {
	for _, original := range []fields{
		{tagDerived, "tenant", "connection", "action", `{"a":1}`},
		{tagSupplied, "tenant", "connection", "action", "key"},
		{"aaaa", "aaaa", "aaaa", "aaaa", "aaaa"}, // the same bytes wherever the border is
		{"\x00\x00\x00\x00\x00\x00\x00\x08", "\x00\x00\x00\x00\x00\x00\x00\x08", "\x00\x00\x00\x00\x00\x00\x00\x08", "\x00\x00\x00\x00\x00\x00\x00\x08", "\x00\x00\x00\x00\x00\x00\x00\x08"},
	} {
		for i := range original {
			for j := range original {
				if i == j {
					continue
				}
				end := len(original[i]) - 1
				start, tail, whole := original, original, original
				start[i], start[j] = original[i][:end], original[i][end:]+original[j]
				tail[i], tail[j] = original[i][1:], original[j]+original[i][:1]
				whole[i], whole[j] = "", original[i]+original[j]
				for _, other := range []fields{start, tail, whole} {
					require.NotEqual(t, original.preimage(), other.preimage(), "%q %q", original, other)
					require.NotEqual(t, original.digest(), other.digest(), "%q %q", original, other)
				}
			}
		}
	}
}

func FuzzPreimage(f *testing.F) {
	f.Add("a", "b:c", "x", "{}", "a:b", "c", "x", "{}")
	f.Add("a\x00\x00\x00\x00\x00\x00\x00\x01b", "c", "x", "{}", "a", "b\x00\x00\x00\x00\x00\x00\x00\x01c", "x", "{}")
	f.Add("", "", "", "", "", "", "", "")
	f.Add("t", "c", "a", `{"a":1}`, "t", "c", "a", `{"a":1.0}`)
	f.Add("t", "c", "a", `{"a":1,"b":2}`, "t", "c", "a", ` {"b":2,"a":1}`)
	f.Fuzz(func(t *testing.T, t1, c1, a1, b1, t2, c2, a2, b2 string) {
		one, two := fields{tagDerived, t1, c1, a1, b1}, fields{tagDerived, t2, c2, a2, b2}
		require.Equal(t, one, parse(t, one.preimage()))
		require.Equal(t, one == two, bytes.Equal(one.preimage(), two.preimage()))
		require.Equal(t, one == two, one.digest() == two.digest())
		supplied := one
		supplied[0] = tagSupplied
		require.NotEqual(t, one.digest(), supplied.digest())

		first, err1 := Derive(Input{TenantID: t1, ConnectionID: c1, Action: a1, Body: []byte(b1)})
		second, err2 := Derive(Input{TenantID: t2, ConnectionID: c2, Action: a2, Body: []byte(b2)})
		if err1 != nil || err2 != nil {
			return
		}
		canonical1, err := strictjson.Canonical([]byte(b1))
		require.NoError(t, err)
		canonical2, err := strictjson.Canonical([]byte(b2))
		require.NoError(t, err)
		one[4], two[4] = string(canonical1), string(canonical2)
		require.Equal(t, one == two, first.Identity == second.Identity)
		require.Equal(t, one.digest(), first.Identity)

		again, err := Derive(Input{TenantID: t1, ConnectionID: c1, Action: a1, Body: []byte("\n" + string(canonical1) + " ")})
		require.NoError(t, err)
		require.Equal(t, first, again, "a canonically equal body is the same write")
		keyed, err := Derive(Input{TenantID: t1, ConnectionID: c1, Action: a1, Body: []byte(b1), Key: strings.Repeat("k", 1+len(b1)%maxKey)})
		require.NoError(t, err)
		require.NotEqual(t, first.Identity, keyed.Identity)
		require.Equal(t, first.Fingerprint, keyed.Fingerprint)
	})
}
