package actions

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzKeptRequest: what is kept is what json.Marshal writes, with every field there
// is, and is read back as it was.
func FuzzKeptRequest(f *testing.F) {
	for _, text := range []string{"", "create", `a"b`, `a\b`, "a<b", "a>b", "a&b", "é\u2028\x00\x7f", "\xff"} {
		f.Add(text, []byte(`{"a":1.10}`), int64(1_767_225_600_123), true, 2)
		f.Add(text, []byte{}, int64(0), false, 0)
		f.Add(text, []byte(nil), int64(-62_135_596_800_000), false, 1)
	}
	f.Fuzz(func(t *testing.T, text string, raw []byte, at int64, flag bool, n int) {
		var k keptRequest
		fill(t, reflect.ValueOf(&k).Elem(), text, raw, at, flag, n)
		want, bad := json.Marshal(k)
		got, err := k.encode()
		require.Equal(t, bad == nil, err == nil)
		if err != nil {
			return
		}
		require.Equal(t, string(want), string(got))
		var back, same keptRequest
		require.NoError(t, json.Unmarshal(got, &back))
		require.NoError(t, json.Unmarshal(want, &same))
		require.Equal(t, same, back)
	})
}

// fill sets every field, so that none can be added and not kept.
func fill(t *testing.T, v reflect.Value, text string, raw []byte, at int64, flag bool, n int) {
	for i := range v.NumField() {
		switch field := v.Field(i).Addr().Interface().(type) {
		case *string:
			*field = v.Type().Field(i).Name + text
		case *[]byte:
			*field = raw
		case *bool:
			*field = flag
		case *time.Time:
			*field = time.UnixMilli(at).UTC()
		case *http.Header:
			if n != 0 {
				*field = http.Header{}
			}
			if n > 1 {
				*field = http.Header{"X-" + text: {text, "b"}, "Accept": {"application/json"}, "B": {}, "C": nil}
			}
		default:
			require.Equal(t, reflect.Struct, v.Field(i).Kind())
			fill(t, v.Field(i), text, raw, at, flag, n)
		}
	}
}
