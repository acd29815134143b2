package connectors_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

func schema(t *testing.T, raw string) *connectors.Schema {
	t.Helper()
	s, err := connectors.CompileSchema([]byte(raw))
	require.NoError(t, err)
	require.JSONEq(t, raw, string(s.JSON()))
	return s
}

func problems(t *testing.T, err error) []connectors.Problem {
	t.Helper()
	var bad *connectors.InputError
	require.ErrorAs(t, err, &bad)
	return bad.Problems
}

func TestValidateSaysWhatIsWrongAndWhere(t *testing.T) {
	s := schema(t, `{"type":"object","additionalProperties":false,"required":["a","b/c"],"minProperties":1,"properties":{
		"a":{"type":["string","null"],"minLength":2,"maxLength":3,"pattern":"^s"},
		"b/c":{"type":"integer","minimum":1.5,"maximum":10,"multipleOf":2},
		"d":{"type":"array","minItems":1,"maxItems":2,"uniqueItems":true,"items":{"enum":["x",1,null,{"y":1}]}},
		"e":{"const":"only"},"f":{"oneOf":[{"type":"string"},{"type":"object","required":["z"]}]},
		"g":{"exclusiveMinimum":0,"exclusiveMaximum":1},"h":false,"i":{"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"maxProperties":1}}}`)
	require.NoError(t, s.Validate([]byte(`{"a":"s1","b/c":4}`)))
	require.NoError(t, s.Validate([]byte(`{"a":"s1","b/c":4.0,"d":["x"],"e":"only","f":"sentinel"}`)))

	const sentinel = "sentinel-value"
	for body, want := range map[string][]connectors.Problem{
		`{}`: {{"/a", "this member is missing"}, {"/b~1c", "this member is missing"}, {"", "this must have at least 1 members"}},
		`{"a":"s1","b/c":4,"zz":"sentinel-value"}`:      {{"/zz", "there is no such member here; remove it"}},
		`{"a":5,"b/c":4}`:                               {{"/a", "this must be of type null or string"}},
		`{"a":"sentinel-value","b/c":4}`:                {{"/a", "this must have at most 3 characters"}},
		`{"a":"x1","b/c":4}`:                            {{"/a", `this must match the pattern "^s"`}},
		`{"a":"s1","b/c":1}`:                            {{"/b~1c", "this must be at least 3/2"}, {"/b~1c", "this must be a multiple of 2"}},
		`{"a":"s1","b/c":4.5}`:                          {{"/b~1c", "this must be of type integer"}},
		`{"a":"s1","b/c":12}`:                           {{"/b~1c", "this must be at most 10"}},
		`{"a":"s1","b/c":4,"d":["sentinel-value"]}`:     {{"/d/0", `this must be one of "x", 1, null, a composite value`}},
		`{"a":"s1","b/c":4,"d":["x","x"]}`:              {{"/d", "two elements are equal; each may stand once"}},
		`{"a":"s1","b/c":4,"e":"sentinel-value"}`:       {{"/e", `this must be "only"`}},
		`{"a":"s1","b/c":4,"f":{"q":"sentinel-value"}}`: {{"/f", "this fits none, or more than one, of the allowed forms"}},
		`{"a":"s1","b/c":4,"g":0}`:                      {{"/g", "this must be more than 0"}},
		`{"a":"s1","b/c":4,"g":1}`:                      {{"/g", "this must be less than 1"}},
		`{"a":"s1","b/c":4,"h":"sentinel-value"}`:       {{"/h", "this is not allowed here"}},
		`{"a":"s1","b/c":4,"i":{"A":1}}`:                {{"", `the member name "A" is not allowed`}},
		`{"a":"s1","a":"s2","b/c":4}`:                   nil, // twice
		`{"a":"s1","b/c":9007199254740993}`:             nil, // not exact
		`{"a":"s1","b/c":1e999999999}`:                  nil,
		`[]`:                                            {{"", "this must be an object"}},
		`"sentinel-value"`:                              {{"", "this must be an object"}},
		`{"a":`:                                         nil,
		`{"a":"s1","b/c":4} {}`:                         nil,
	} {
		err := s.Validate([]byte(body))
		got := problems(t, err)
		require.NotEmpty(t, got, body)
		require.NotContains(t, err.Error(), sentinel, body)
		if want != nil {
			require.ElementsMatch(t, want, got, body)
		}
	}
}

func TestValidateIsBounded(t *testing.T) {
	s := schema(t, `{"type":"object","additionalProperties":{"type":"string"}}`)
	var b strings.Builder
	b.WriteString(`{"` + strings.Repeat("A", 1000) + `":1`)
	for i := range 100 {
		b.WriteString(`,"k` + string(rune('a'+i%26)) + string(rune('a'+i/26)) + `":1`)
	}
	b.WriteString("}")
	got := problems(t, s.Validate([]byte(b.String())))
	require.Len(t, got, 20)
	for _, p := range got {
		require.LessOrEqual(t, len(p.Pointer), 256)
	}
}

func TestNoSchemaAcceptsOnlyNothing(t *testing.T) {
	var none *connectors.Schema
	require.NoError(t, none.Validate([]byte(`{}`)))
	require.Error(t, none.Validate([]byte(`{"a":1}`)))
	require.True(t, json.Valid(none.JSON()))
	require.NoError(t, connectors.Spec{}.ValidateConfig(nil))
	require.Error(t, connectors.Spec{}.ValidateConfig([]byte(`{"a":1}`)))
}

func TestSchemaReachesNothing(t *testing.T) {
	for _, raw := range []string{
		`{"$ref":"https://evil.example/x"}`, `{"$ref":"file:///etc/passwd"}`, `{"$ref":"other.json"}`, `{"$schema":"https://evil.example/meta"}`,
		`{"type":"thing"}`, `{"pattern":"("}`, `[]`, `{`, `{"type":"object"} x`,
	} {
		_, err := connectors.CompileSchema([]byte(raw))
		require.Error(t, err, raw)
	}
	file := filepath.Join(t.TempDir(), "schema.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"type":"object"}`), 0o600))
	for _, url := range []string{file, "file://" + file} {
		_, err := connectors.CompileSchema([]byte(`{"$ref":"` + url + `"}`))
		require.Error(t, err, url)
	}
	_, err := connectors.CompileSchema([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`))
	require.NoError(t, err)
}

func TestValidateInputKnowsItsActions(t *testing.T) {
	spec := connectors.Spec{Actions: map[string]connectors.ActionSpec{"a": {Input: schema(t, `{"type":"object"}`)}}}
	require.NoError(t, spec.ValidateInput("a", []byte(`{}`)))
	require.ErrorIs(t, spec.ValidateInput("b", []byte(`{}`)), connectors.ErrUnknownAction)
}
