package identity_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/identity/identitytest"
	"holdfast.dev/gateway/internal/strictjson"
)

func input(change ...func(*identity.Input)) identity.Input {
	in := identity.Input{TenantID: "acme", ConnectionID: "con_01", Action: "create_invoice", Body: []byte(`{"customer":"c","amount":4200}`)}
	for _, c := range change {
		c(&in)
	}
	return in
}

func derive(t *testing.T, in identity.Input) identity.Result {
	t.Helper()
	r, err := identity.Derive(in)
	require.NoError(t, err)
	return r
}

func body(raw string) func(*identity.Input) {
	return func(in *identity.Input) { in.Body = []byte(raw) }
}
func key(k string) func(*identity.Input)       { return func(in *identity.Input) { in.Key = k } }
func ignore(p ...string) func(*identity.Input) { return func(in *identity.Input) { in.Ignore = p } }
func tenant(id string) func(*identity.Input)   { return func(in *identity.Input) { in.TenantID = id } }
func connection(id string) func(*identity.Input) {
	return func(in *identity.Input) { in.ConnectionID = id }
}
func action(name string) func(*identity.Input) { return func(in *identity.Input) { in.Action = name } }

// What is hashed, spelled out byte by byte from the contract. The digests were
// made by another program, sha256sum.
func TestDerivedVector(t *testing.T) {
	const spelled = "\x00\x00\x00\x00\x00\x00\x00\x13holdfast/v1/derived" +
		"\x00\x00\x00\x00\x00\x00\x00\x04acme" +
		"\x00\x00\x00\x00\x00\x00\x00\x06con_01" +
		"\x00\x00\x00\x00\x00\x00\x00\x0ecreate_invoice" +
		"\x00\x00\x00\x00\x00\x00\x00\x1e{\"amount\":4200,\"customer\":\"c\"}"
	const want = "4dced4572958bd5e0cf5e477db1d995f11f8e304e39ef7c232a4803f67535d86"
	sum := sha256.Sum256([]byte(spelled))
	require.Equal(t, want, hex.EncodeToString(sum[:]))

	r := derive(t, input())
	require.Equal(t, want, r.Identity.String())
	require.Equal(t, want, r.Fingerprint.String())
	require.Equal(t, "4dced4572958bd5e", r.Identity.PublicID())
	require.Equal(t, identity.Derived, r.Source)
	require.Equal(t, "derived", string(r.Source))
}

func TestSuppliedVector(t *testing.T) {
	const spelled = "\x00\x00\x00\x00\x00\x00\x00\x14holdfast/v1/supplied" +
		"\x00\x00\x00\x00\x00\x00\x00\x04acme" +
		"\x00\x00\x00\x00\x00\x00\x00\x06con_01" +
		"\x00\x00\x00\x00\x00\x00\x00\x0ecreate_invoice" +
		"\x00\x00\x00\x00\x00\x00\x00\x05run-7"
	const want = "0ae603825d04dc3a631fe97a7fca275c11daf638c330905b6ea86823fd4e31ec"
	sum := sha256.Sum256([]byte(spelled))
	require.Equal(t, want, hex.EncodeToString(sum[:]))

	r := derive(t, input(key("run-7")))
	require.Equal(t, want, r.Identity.String())
	require.Equal(t, derive(t, input()).Fingerprint, r.Fingerprint, "the fingerprint is the derived form whatever the key")
	require.Equal(t, identity.Supplied, r.Source)
	require.Equal(t, "supplied", string(r.Source))
}

// A length above 255 reaches the second byte of the prefix, an empty body is a
// body, and names are bytes, not characters.
func TestVectorsOfOtherLengths(t *testing.T) {
	long := `{"a":"` + strings.Repeat("x", 300-8) + `"}`
	sum := sha256.Sum256([]byte("\x00\x00\x00\x00\x00\x00\x00\x13holdfast/v1/derived" +
		"\x00\x00\x00\x00\x00\x00\x00\x02\xc3\xa9\x00\x00\x00\x00\x00\x00\x00\x01c\x00\x00\x00\x00\x00\x00\x00\x01a" +
		"\x00\x00\x00\x00\x00\x00\x01\x2c" + long))
	r := derive(t, input(tenant("é"), connection("c"), action("a"), body(long)))
	require.Equal(t, hex.EncodeToString(sum[:]), r.Identity.String())

	sum = sha256.Sum256([]byte("\x00\x00\x00\x00\x00\x00\x00\x13holdfast/v1/derived" +
		"\x00\x00\x00\x00\x00\x00\x00\x01t\x00\x00\x00\x00\x00\x00\x00\x01c\x00\x00\x00\x00\x00\x00\x00\x01a" +
		"\x00\x00\x00\x00\x00\x00\x00\x02{}"))
	r = derive(t, input(tenant("t"), connection("c"), action("a"), body("{}")))
	require.Equal(t, hex.EncodeToString(sum[:]), r.Identity.String())
}

func TestSameWrite(t *testing.T) {
	want := derive(t, input())
	for _, same := range identitytest.Same() {
		require.Equal(t, want, derive(t, input(body(same))), same)
	}
	require.NotEqual(t, want.Identity, derive(t, input(key("k"))).Identity)
	require.Equal(t, derive(t, input(key("k"))).Identity, derive(t, input(key("k"), body(`{"other":1}`))).Identity, "an own key alone decides")
}

func TestAnotherWrite(t *testing.T) {
	seen := map[identity.Identity]int{}
	inputs := []identity.Input{
		input(),
		input(tenant("acme2")), input(connection("con_02")), input(action("create_invoices")),
		input(key("k")), input(key("K")), input(key("k"), tenant("acme2")), input(key("k"), connection("con_02")), input(key("k"), action("x")),
	}
	for _, other := range identitytest.Others() {
		inputs = append(inputs, input(body(other)))
	}
	for i, in := range inputs {
		id := derive(t, in).Identity
		other, taken := seen[id]
		require.False(t, taken, "%d and %d", i, other)
		seen[id] = i
	}
}

// The kinds are kept apart though every other byte is the same: the key is the
// canonical body of the very same request.
func TestDerivedAndSuppliedNeverMeet(t *testing.T) {
	canonical := `{"amount":4200,"customer":"c"}`
	derived, supplied := derive(t, input()), derive(t, input(key(canonical)))
	require.NotEqual(t, derived.Identity, supplied.Identity)
	require.Equal(t, derived.Fingerprint, supplied.Fingerprint)
	// Nor can a key be chosen so that it is another request's hash.
	require.NotEqual(t, derived.Identity, derive(t, input(key(derived.Identity.String()))).Identity)
}

func TestFieldShifting(t *testing.T) {
	for _, pair := range [][2]identity.Input{
		{input(tenant("a"), connection("b:c")), input(tenant("a:b"), connection("c"))},
		{input(tenant("a"), connection("bc")), input(tenant("ab"), connection("c"))},
		{input(tenant("a|b"), connection("c")), input(tenant("a"), connection("b|c"))},
		{input(connection("a"), action("b/c")), input(connection("a/b"), action("c"))},
		{input(tenant("a\x00"), connection("b")), input(tenant("a"), connection("\x00b"))},
		{input(tenant("x"), connection("y"), action("z")), input(tenant("z"), connection("y"), action("x"))},
		// Lengths as text.
		{input(tenant("1:a"), connection("b")), input(tenant("1"), connection(":ab"))},
		{input(tenant("4acme"), connection("b")), input(tenant("4"), connection("acmeb"))},
		// A name that holds the raw prefix of the next field, and the next field.
		{
			input(tenant("a\x00\x00\x00\x00\x00\x00\x00\x01b"), connection("c")),
			input(tenant("a"), connection("b\x00\x00\x00\x00\x00\x00\x00\x01c")),
		},
		{
			input(action("a\x00\x00\x00\x00\x00\x00\x00\x02{}"), body("{}")),
			input(action("a"), body("{}")),
		},
		{
			input(connection("a\x00\x00\x00\x00\x00\x00\x00\x01b\x00\x00\x00\x00\x00\x00\x00\x01"), action("c"), key("k")),
			input(connection("a"), action("b\x00\x00\x00\x00\x00\x00\x00\x01c"), key("k")),
		},
		{
			input(tenant("\x00\x00\x00\x00\x00\x00\x00\x04"), connection("acme")),
			input(tenant("\x00\x00\x00\x00\x00\x00\x00"), connection("\x04acme")),
		},
	} {
		first, second := derive(t, pair[0]), derive(t, pair[1])
		require.NotEqual(t, first.Identity, second.Identity, pair)
		require.NotEqual(t, first.Fingerprint, second.Fingerprint, pair)
	}
}

func TestIgnore(t *testing.T) {
	stamped := func(at string) func(*identity.Input) {
		return body(`{"customer":"c","sent_at":"` + at + `","meta":{"try":"` + at + `","run":"r"},"lines":[{"at":"` + at + `"}]}`)
	}
	rules := ignore("/sent_at", "/meta/try")
	lines := body(`{"customer":"c","meta":{"run":"r"},"lines":[{"at":"1"}]}`)

	one := derive(t, input(stamped("1"), rules))
	require.NotEqual(t, one, derive(t, input(stamped("2"), rules)), "a pointer does not reach into an array")
	require.Equal(t, one, derive(t, input(lines, rules)), "ignored and absent are the same")
	require.Equal(t, one, derive(t, input(lines)))
	require.NotEqual(t, one, derive(t, input(stamped("1"))), "without the rules it counts")

	// The same holds for the fingerprint of a request with its own key.
	a := derive(t, input(body(`{"n":1,"at":1}`), ignore("/at"), key("k")))
	b := derive(t, input(body(`{"n":1,"at":2}`), ignore("/at"), key("k")))
	require.Equal(t, a, b)
	require.NotEqual(t, a.Fingerprint, derive(t, input(body(`{"n":2,"at":1}`), ignore("/at"), key("k"))).Fingerprint)

	require.Equal(t, derive(t, input(body(`{}`))), derive(t, input(body(`{"at":9}`), ignore("/at"))))
	require.Equal(t, derive(t, input(body(`{"a":[1]}`))), derive(t, input(body(`{"a":[1]}`), ignore("/a/0", "/x"))))

	_, err := identity.Derive(input(ignore("/ok", "sent_at")))
	require.ErrorIs(t, err, strictjson.ErrPointer)
	_, err = identity.Derive(input(ignore("")))
	require.ErrorIs(t, err, strictjson.ErrPointer)
}

func TestDeriveRefusesBodies(t *testing.T) {
	for raw, want := range map[string]strictjson.Error{
		"":                              {Reason: "the text is empty; send one JSON value"},
		"null":                          {Reason: "the body must be a JSON object"},
		" [] ":                          {Reason: "the body must be a JSON object"},
		`"{}"`:                          {Reason: "the body must be a JSON object"},
		"1":                             {Reason: "the body must be a JSON object"},
		`{"a":1,"a":2}`:                 {Pointer: "/a", Reason: "this member name occurs more than once in its object", Offset: 7},
		`{"amount":9007199254740993}`:   {Pointer: "/amount", Reason: "this number cannot be represented exactly; send it as a string", Offset: 10},
		`{"amount":1e400}`:              {Pointer: "/amount", Reason: "this number cannot be represented exactly; send it as a string", Offset: 10},
		`{"at":0.10000000000000000555}`: {Pointer: "/at", Reason: "this number cannot be represented exactly; send it as a string", Offset: 6},
	} {
		for _, in := range []identity.Input{input(body(raw)), input(body(raw), key("k")), input(body(raw), ignore("/a", "/at", "/amount"))} {
			r, err := identity.Derive(in)
			var refused *strictjson.Error
			require.ErrorAs(t, err, &refused, raw)
			require.Equal(t, want, *refused, raw)
			require.Zero(t, r)
		}
	}
	_, err := identity.Derive(input(func(in *identity.Input) { in.Body = nil }))
	require.Error(t, err)
}

func TestDeriveRefusesAnIncompleteInput(t *testing.T) {
	for _, in := range []identity.Input{input(tenant("")), input(connection("")), input(action("")), {}} {
		r, err := identity.Derive(in)
		require.ErrorIs(t, err, identity.ErrIncomplete)
		require.Zero(t, r)
	}
}

func TestDeriveChecksTheKey(t *testing.T) {
	r, err := identity.Derive(input(key(" k")))
	var refused *identity.KeyError
	require.True(t, errors.As(err, &refused))
	require.Zero(t, r)
}
