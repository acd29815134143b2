package tenants

import (
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// Keys that customers hold must be accepted by every release to come. The text
// was put together in another language from the bytes 1…16 (scope), 17…24 and
// 101…132 (secret).
const pinnedKey = "hf_aebagbafaydqqcikbmga2dqpcaireeyuculboga_mvtgo2djnjvwy3lon5yhc4ttor2xm53ypf5hw7d5pz7ybamcqocav2eioqi"

func TestKeyFormIsStable(t *testing.T) {
	var scope ledger.Scope
	for i := range scope {
		scope[i] = byte(1 + i)
	}
	got, id, hash, ok := parseKey(pinnedKey)
	require.True(t, ok)
	require.Equal(t, scope, got)
	require.Equal(t, strings.Split(pinnedKey, "_")[1], id)
	secret := make([]byte, secretSize)
	for i := range secret {
		secret[i] = byte(101 + i)
	}
	require.Equal(t, secretHash(sha256.Sum256(secret)), hash)
}

func TestMintedKeysAreParsed(t *testing.T) {
	scope := ledger.ScopeOf("acme")
	text, id, hash := mint(scope)
	gotScope, gotID, gotHash, ok := parseKey(text)
	require.True(t, ok)
	require.Equal(t, scope, gotScope)
	require.Equal(t, id, gotID)
	require.Equal(t, hash, gotHash)
	other, _, _ := mint(scope)
	require.NotEqual(t, text, other)
}

// Base32 leaves bits over in the last character of an id and of a secret; a
// second spelling of the same bytes is refused even with a right checksum.
func TestKeysHaveOneSpelling(t *testing.T) {
	text, id, _ := mint(ledger.ScopeOf("acme"))
	secret := strings.Split(text, "_")[2][:52]
	for _, bad := range []string{
		"hf_" + bump(id) + "_" + secret,
		"hf_" + id + "_" + bump(secret),
		"hf_" + id + "a_" + secret,
		"hf_" + id + "_" + secret + "a",
		"hf_" + id + "_" + secret[:51],
		"hf_" + id + "_",
		"hf__" + secret,
		"hf_a_",
		"hf_" + id + "_" + secret + "\n",
	} {
		_, _, _, ok := parseKey(bad + checksum(bad))
		require.False(t, ok, bad)
	}
	_, _, _, ok := parseKey("hf_" + id + "_" + secret + checksum("hf_"+id+"_"+secret))
	require.True(t, ok)
}

// bump sets an unused low bit of the last character.
func bump(text string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz234567"
	last := strings.IndexByte(letters, text[len(text)-1])
	return text[:len(text)-1] + string(letters[last+1])
}

func FuzzParseKey(f *testing.F) {
	text, _, _ := mint(ledger.ScopeOf("acme"))
	f.Add(text)
	f.Add(pinnedKey)
	f.Add("hf__")
	f.Add("")
	f.Add("hf_" + strings.Repeat("a", 39) + "_" + strings.Repeat("a", 59))
	f.Fuzz(func(t *testing.T, text string) {
		scope, id, _, ok := parseKey(text)
		if !ok {
			return
		}
		require.NotEqual(t, ledger.Platform, scope)
		require.Len(t, text, 102)
		require.True(t, strings.HasPrefix(text, "hf_"+id+"_"))
		again, isID := scopeOf(id)
		require.True(t, isID)
		require.Equal(t, scope, again)
	})
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("AAAAAAAAAABrL2E")
	f.Add("AAAAAAAAAABrL2F")
	f.Add("00000\r0000000")
	f.Fuzz(func(t *testing.T, cursor string) {
		e, err := parseCursor(cursor)
		if err != nil || cursor == "" {
			return
		}
		require.Equal(t, cursor, formatCursor(e))
	})
}
