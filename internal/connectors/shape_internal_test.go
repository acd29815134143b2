package connectors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

const shaped = `{"type":"object","additionalProperties":false,"required":["a"],"properties":{` +
	`"a":{"type":"string","minLength":2,"maxLength":3},"b":{"type":["integer","null"]},"c":{"type":"number"},"d":{"enum":["x","é"]},` +
	`"e":{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2},"f":{"type":"object","minProperties":1,"maxProperties":2,"additionalProperties":{"type":"string"}},` +
	`"g":true,"h":false,"i":{"type":"object","required":["z"]},"p":{"type":"string","pattern":"^a"},"q":{"type":"integer","minimum":3},"r":{"oneOf":[{"type":"string"},{"type":"array"}]}}}`

// What fits a shape is valid to the library; of what is valid, a shape may leave
// some to it.
func FuzzShape(f *testing.F) {
	schemas := []string{
		shaped, `true`, `false`, `{}`, `{"type":[]}`, `{"$defs":{"a":{"type":"integer"}},"properties":{"a":{"$ref":"#/$defs/a"}}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false,"properties":{"a":{"items":{"type":"null"}}}}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"a":{"type":"integer"}}}`,
		`{"unevaluatedProperties":false,"properties":{"a":{"type":"integer"}},"allOf":[{"properties":{"b":{}}}]}`,
		`{"properties":{"a":{"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}},"patternProperties":{"^x":{"type":"null"}}}`,
		`{"$dynamicAnchor":"n","properties":{"a":{"$id":"s","$dynamicAnchor":"n","properties":{"b":{"$dynamicRef":"#n"}}}},"required":["a","b"]}`,
		`{"required":["a","a"],"properties":{"a":{"const":1},"b":{"enum":[1,"x",null]}},"additionalProperties":{"maxLength":1,"minLength":0}}`,
		`{"type":"object","properties":{"a":{"uniqueItems":true,"contains":{"type":"string"}}},"propertyNames":{"maxLength":2},"dependentRequired":{"a":["b"]}}`,
	}
	docs := []string{
		`{"a":"ab"}`, `{"a":"ab","b":1,"c":1.5,"d":"x","e":[true],"f":{"y":"z"},"g":[],"i":{"z":1},"p":"ab","q":3,"r":[]}`, `{"a":"éé","b":null,"d":"\u00e9"}`,
		`{"a":"abcd"}`, `{"a":"\u0061b"}`, `{"b":1}`, `{"a":"ab","b":1.0}`, `{"a":"ab","b":1e2}`, `{"a":"ab","b":-0}`, `{"a":"ab","c":-0.0}`, `{"a":"ab","e":[]}`,
		`{"a":"ab","h":1}`, `{"a":"ab","zz":1}`, `{"a":1,"b":2}`, `{"a":["x",1]}`, `[]`, `1`, `"x"`, `null`, `{"a":"ab","f":{"k":1}}`, `{"xa":null,"xb":1}`, `{"a":{"b":{"b":1}}}`,
	}
	for _, s := range schemas {
		for _, d := range docs {
			f.Add([]byte(s), []byte(d))
		}
	}
	f.Fuzz(func(t *testing.T, schema, raw []byte) {
		s, err := CompileSchema(schema)
		if err != nil || strictjson.Check(raw) != nil {
			return
		}
		raw = []byte(strings.Trim(string(raw), " \t\r\n"))
		doc, err := tree(raw)
		require.NoError(t, err)
		if s.shape.fits(raw) {
			require.NoError(t, s.compiled.Validate(doc), "%s: %s", schema, raw)
		}
	})
}

// What is valid by the common keywords alone is told without the library.
func TestShapes(t *testing.T) {
	s, err := CompileSchema([]byte(shaped))
	require.NoError(t, err)
	for doc, fits := range map[string]bool{
		`{"a":"ab"}`: true, ` { "a" : "éé" } `: true, `{"a":"\u00e9b"}`: true, `{"a":"a"}`: false, `{"a":"abcd"}`: false, `{"a":1}`: false,
		`{}`: false, `{"b":1}`: false, `{"a":"ab","z":1}`: false, `{"a":"ab","h":1}`: false, `{"a":"ab","g":{"any":[1]}}`: true,
		`{"a":"ab","b":1}`: true, `{"a":"ab","b":null}`: true, `{"a":"ab","b":"1"}`: false, `{"a":"ab","b":1.5}`: false,
		`{"a":"ab","c":1}`: true, `{"a":"ab","c":1.5e3}`: true, `{"a":"ab","d":"x"}`: true, `{"a":"ab","d":"\u00e9"}`: true, `{"a":"ab","d":"y"}`: false, `{"a":"ab","d":1}`: false,
		`{"a":"ab","e":[true,false]}`: true, `{"a":"ab","e":[]}`: false, `{"a":"ab","e":[true,true,true]}`: false, `{"a":"ab","e":[1]}`: false,
		`{"a":"ab","f":{"k":"v"}}`: true, `{"a":"ab","f":{}}`: false, `{"a":"ab","f":{"k":1}}`: false, `{"a":"ab","f":{"k":"","l":"","m":""}}`: false,
		`{"a":"ab","i":{"z":1}}`: true, `{"a":"ab","i":{}}`: false, `{"a":"ab","p":"ab"}`: true, `{"a":"ab","p":"b"}`: false,
		`{"a":"ab","q":3}`: true, `{"a":"ab","q":2}`: false, `{"a":"ab","r":"x"}`: true, `{"a":"ab","r":1}`: false,
	} {
		require.Equal(t, fits, s.shape.fits([]byte(strings.TrimSpace(doc))), doc)
		require.Equal(t, fits, s.Validate([]byte(doc)) == nil, doc)
	}
	require.Nil(t, s.shape.compiled)
	require.NotNil(t, s.shape.members["p"].shape.compiled, "a pattern")
	require.NoError(t, s.Validate([]byte(`{"a":"ab","b":1.0}`)), "an integer, which the library knows")
	require.False(t, s.shape.fits([]byte(`{"a":"ab","b":1.0}`)))
}

// A part of a schema that means something else by the way to it is not taken alone.
func TestDynamicSchemasAreTheLibrarys(t *testing.T) {
	for _, schema := range []string{
		`{"properties":{"a":{"$dynamicRef":"#/$defs/x"}},"$defs":{"x":{}}}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","properties":{"a":{"$recursiveRef":"#"}}}`,
		`{"properties":{"a":{"items":[{"\u0024dynamicRef":"#/$defs/x"}]}},"$defs":{"x":{}},"$schema":"https://json-schema.org/draft/2019-09/schema"}`,
	} {
		s, err := CompileSchema([]byte(schema))
		require.NoError(t, err)
		require.NotNil(t, s.shape.compiled, schema)
	}
}

// The library's own schemas have such references, too: what their anchors are called
// in a schema means something to a part of it that refers to one of those.
func TestAnchorsOfTheLibrarysOwnSchemas(t *testing.T) {
	for schema, own := range map[string]string{
		`{"properties":{"a":{"$id":"sub","$ref":"%s"}},"$defs":{"m":{"$dynamicAnchor":"meta","type":["object","boolean"],"maxProperties":1}}}`: "https://json-schema.org/draft/2020-12/schema",
		`{"$schema":"%[1]s","properties":{"a":{"$id":"sub","$ref":"%[1]s"}},"$recursiveAnchor":true,"maxProperties":1}`:                        "https://json-schema.org/draft/2019-09/schema",
	} {
		s, err := CompileSchema(fmt.Appendf(nil, schema, own))
		require.NoError(t, err)
		require.NoError(t, s.Validate([]byte(`{"a":{"properties":{"x":{"minLength":1}}}}`)))
		require.Error(t, s.Validate([]byte(`{"a":{"properties":{"x":{"minLength":1,"maxLength":2}}}}`)), schema)
	}
}
