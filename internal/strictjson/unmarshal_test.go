package strictjson_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

type order struct {
	Name    string            `json:"name"`
	Count   int               `json:"count,omitempty"`
	Small   uint8             `json:"small"`
	Ratio   float64           `json:"ratio"`
	On      bool              `json:"on"`
	Body    json.RawMessage   `json:"body"`
	Meta    map[string]string `json:"meta"`
	Lines   []line            `json:"lines"`
	Parent  *line             `json:"parent"`
	Label   *string           `json:"label"`
	Free    any               `json:"free"`
	Exact   json.Number       `json:"exact"`
	When    time.Time         `json:"when"`
	Wait    textual           `json:"wait"`
	Blob    []byte            `json:"blob"`
	Raws    []json.RawMessage `json:"raws"`
	NoTag   string
	Skipped string `json:"-"`
	hidden  string
}

type line struct {
	SKU string `json:"sku"`
	N   int64  `json:"n"`
}

type textual struct{ text string }

func (x *textual) UnmarshalText(b []byte) error {
	if string(b) == "bad" {
		return errors.New("do not show " + string(b))
	}
	x.text = string(b)
	return nil
}

func TestUnmarshal(t *testing.T) {
	o := order{hidden: "kept", Skipped: "kept", Count: 7, Ratio: 1.5}
	err := strictjson.Unmarshal([]byte(` {
		"name":"a\u00e9", "small":255, "on":true, "body": {"n": 1.10, "m":[ ] } , "meta":{"k":"v","":"w"},
		"lines":[{"sku":"x","n":-9007199254740991},{}], "parent":{"n":1}, "label":null, "free":{"a":[1.10,null,"x"]}, "exact":1e2,
		"when":"2026-11-13T10:00:00Z", "wait":"soon", "blob":"aGk=", "raws":[null,-0], "NoTag":"y"} `), &o)
	require.NoError(t, err)
	require.Equal(t, order{
		Name: "aé", Count: 7, Small: 255, Ratio: 1.5, On: true, Body: json.RawMessage(`{"n": 1.10, "m":[ ] }`),
		Meta: map[string]string{"k": "v", "": "w"}, Lines: []line{{"x", -9007199254740991}, {}}, Parent: &line{N: 1},
		Free: map[string]any{"a": []any{json.Number("1.10"), nil, "x"}}, Exact: "1e2",
		When: time.Date(2026, 11, 13, 10, 0, 0, 0, time.UTC), Wait: textual{"soon"}, Blob: []byte("hi"),
		Raws: []json.RawMessage{json.RawMessage("null"), json.RawMessage("-0")}, NoTag: "y", Skipped: "kept", hidden: "kept",
	}, o)
}

func TestUnmarshalCopiesRawBytes(t *testing.T) {
	raw := []byte(`{"body":{"a":1}}`)
	var o order
	require.NoError(t, strictjson.Unmarshal(raw, &o))
	raw[9] = 'X'
	require.JSONEq(t, `{"a":1}`, string(o.Body))
}

func TestUnmarshalKeepsNullInRawMessage(t *testing.T) {
	var o order
	require.NoError(t, strictjson.Unmarshal([]byte(`{"body":null,"free":null,"parent":null}`), &o))
	require.Equal(t, "null", string(o.Body))
	o = order{}
	require.NoError(t, strictjson.Unmarshal([]byte(`{}`), &o))
	require.Nil(t, o.Body, "absent is not null")
}

func TestUnmarshalOtherRoots(t *testing.T) {
	var list []int
	require.NoError(t, strictjson.Unmarshal([]byte(` [1,2] `), &list))
	require.Equal(t, []int{1, 2}, list)
	var byName map[string]line
	require.NoError(t, strictjson.Unmarshal([]byte(`{"a":{"n":1}}`), &byName))
	require.Equal(t, map[string]line{"a": {N: 1}}, byName)
	var pointer *line
	require.NoError(t, strictjson.Unmarshal([]byte(`{"n":2}`), &pointer))
	require.Equal(t, &line{N: 2}, pointer)
	require.NoError(t, strictjson.Unmarshal([]byte(`null`), &pointer))
	require.Nil(t, pointer)
	var anything any = "before"
	require.NoError(t, strictjson.Unmarshal([]byte(`9007199254740991`), &anything))
	require.Equal(t, json.Number("9007199254740991"), anything)
}

func TestUnmarshalRefuses(t *testing.T) {
	const (
		null    = "null is not allowed here; leave the member out instead"
		text    = "a string is expected here"
		integer = "a whole number, without fraction or exponent and in range, is expected here"
		natural = "a whole number of at least 0, without fraction or exponent and in range, is expected here"
		object  = "an object is expected here"
		array   = "an array is expected here"
		form    = "this value does not have the form that is expected here"
	)
	for _, c := range []struct {
		raw, pointer string
		offset       int
		reason       string
	}{
		{`{"nome":1}`, "/nome", 1, "unknown member; remove it"},
		{`{"Name":"x"}`, "/Name", 1, `unknown member; names are case-sensitive: write "name"`},
		{`{"name":"x","NAME":"y"}`, "/NAME", 12, `unknown member; names are case-sensitive: write "name"`},
		{"{\"\u017fmall\":1}", "/\u017fmall", 1, `unknown member; names are case-sensitive: write "small"`}, // long s folds to s
		{`{"notag":1}`, "/notag", 1, `unknown member; names are case-sensitive: write "NoTag"`},
		{`{"Skipped":"x"}`, "/Skipped", 1, "unknown member; remove it"},
		{`{"-":"x"}`, "/-", 1, "unknown member; remove it"},
		{`{"hidden":"x"}`, "/hidden", 1, "unknown member; remove it"},
		{`{"name":null}`, "/name", 8, null},
		{`{"count":null}`, "/count", 9, null},
		{`{"on":null}`, "/on", 6, null},
		{`{"meta":null}`, "/meta", 8, null},
		{`{"meta":{"k":null}}`, "/meta/k", 13, null},
		{`{"lines":null}`, "/lines", 9, null},
		{`{"lines":[{},null]}`, "/lines/1", 13, null},
		{`{"when":null}`, "/when", 8, null},
		{`{"exact":null}`, "/exact", 9, null},
		{`{"blob":null}`, "/blob", 8, null},
		{`null`, "", 0, null},
		{`[]`, "", 0, object},
		{` 1`, "", 1, object},
		{`{"name":1}`, "/name", 8, text},
		{`{"name":["x"]}`, "/name", 8, text},
		{`{"count":"1"}`, "/count", 9, integer},
		{`{"count":1.0}`, "/count", 9, integer},
		{`{"count":1e2}`, "/count", 9, integer},
		{`{"count":1e30}`, "/count", 9, integer},
		{`{"count":true}`, "/count", 9, integer},
		{`{"small":256}`, "/small", 9, natural},
		{`{"small":-1}`, "/small", 9, natural},
		{`{"ratio":"1"}`, "/ratio", 9, "a number is expected here"},
		{`{"exact":"1"}`, "/exact", 9, "a number is expected here"},
		{`{"on":"true"}`, "/on", 6, "true or false is expected here"},
		{`{"on":1}`, "/on", 6, "true or false is expected here"},
		{`{"meta":[]}`, "/meta", 8, object},
		{`{"meta":{"a/b":1}}`, "/meta/a~1b", 15, text},
		{`{"lines":{}}`, "/lines", 9, array},
		{`{ "lines" : [ {} , {"sku":"x","x":1} ] }`, "/lines/1/x", 30, "unknown member; remove it"},
		{`{"parent":{"n":"secret"}}`, "/parent/n", 15, integer},
		{`{"parent":[]}`, "/parent", 10, object},
		{`{"label":7}`, "/label", 9, text},
		{`{"when":"secret"}`, "/when", 8, form},
		{`{"wait":"bad"}`, "/wait", 8, form},
		{`{"wait":1}`, "/wait", 8, form},
		{`{"blob":"secret%"}`, "/blob", 8, "a string in base64 is expected here"},
		{`{"blob":[1]}`, "/blob", 8, "a string in base64 is expected here"},
	} {
		before := order{Name: "before", Parent: &line{N: 1}, Meta: map[string]string{"k": "v"}}
		o := before
		err := strictjson.Unmarshal([]byte(c.raw), &o)
		var all strictjson.Errors
		require.ErrorAs(t, err, &all, c.raw)
		require.Len(t, all, 1, c.raw)
		require.Equal(t, strictjson.Error{Pointer: c.pointer, Reason: c.reason, Offset: c.offset}, *all[0], c.raw)
		var first *strictjson.Error
		require.ErrorAs(t, err, &first)
		require.Same(t, all[0], first)
		require.Equal(t, all[0].Error(), err.Error())
		require.NotContains(t, err.Error(), "secret", c.raw)
		require.Equal(t, before, o, "refused, yet changed: %s", c.raw)
		require.Equal(t, int64(1), before.Parent.N)
	}
}

func TestUnmarshalChecksFirst(t *testing.T) {
	for _, raw := range []string{"", "{", `{"name":"a","name":"b"}`, `{"body":9007199254740993}`, `{"nome":01}`, "{}x"} {
		var o order
		err := strictjson.Unmarshal([]byte(raw), &o)
		require.Equal(t, strictjson.Check([]byte(raw)), err, raw)
		var shape strictjson.Errors
		require.False(t, errors.As(err, &shape), "not a matter of shape")
	}
}

func TestUnmarshalListsProblemsInOrder(t *testing.T) {
	var o order
	err := strictjson.Unmarshal([]byte(`{"x":1,"name":2,"lines":[{"n":"3"},4],"on":true}`), &o)
	var all strictjson.Errors
	require.ErrorAs(t, err, &all)
	var pointers []string
	for _, e := range all {
		pointers = append(pointers, e.Pointer)
	}
	require.Equal(t, []string{"/x", "/name", "/lines/0/n", "/lines/1"}, pointers)
	require.Equal(t, `refuse JSON at "/x" (byte 1): unknown member; remove it (and 3 more)`, err.Error())

	err = strictjson.Unmarshal([]byte(`{"lines":[`+strings.TrimSuffix(strings.Repeat("1,", 500), ",")+`]}`), &o)
	require.ErrorAs(t, err, &all)
	require.Len(t, all, 20)
	require.Equal(t, "refuse JSON", strictjson.Errors{}.Error())
}

type embedding struct{ line }

func TestUnmarshalRefusesGoTypesItDoesNotKnow(t *testing.T) {
	var nilPointer *order
	for name, v := range map[string]any{
		"no pointer":  order{},
		"nil":         nil,
		"nil pointer": nilPointer,
		"embedded":    &embedding{},
		"array":       &struct{ A [2]int }{},
		"channel":     &struct{ A chan int }{},
		"interface":   &struct{ A error }{},
		"map by int":  &struct{ A map[int]int }{},
		"string option": &struct {
			A int `json:",string"`
		}{},
		// Made at run time, since go vet would not have it in the source.
		"two of a name": reflect.New(reflect.StructOf([]reflect.StructField{
			{Name: "A", Type: reflect.TypeFor[int]()},
			{Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"A"`},
		})).Interface(),
	} {
		err := strictjson.Unmarshal([]byte(`{"A":{}}`), v)
		require.ErrorIs(t, err, strictjson.ErrType, name)
	}
}
