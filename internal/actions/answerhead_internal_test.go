package actions

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// The head of a stored answer is written and read as encoding/json does it.
func FuzzAnswerHead(f *testing.F) {
	f.Add("json", "", "", "", "", "", int64(0))
	f.Add("binary", "text/plain; charset=\"x\"", "Location", "/a?b=<c>&d", "", "", int64(0))
	f.Add("omitted", "", "X", "\u2028é\x00\\", "too_large", "ab12", int64(1<<40))
	f.Fuzz(func(t *testing.T, kind, contentType, name, value, reason, sum string, size int64) {
		a := &Answer{Kind: AnswerKind(kind), ContentType: contentType, Reason: reason, SHA256: sum, Bytes: size}
		if name != "" {
			a.Headers = map[string]string{name: value, "B": ""}
		}
		head, err := json.Marshal(a)
		require.NoError(t, err)
		require.Equal(t, string(head), string(a.head()))
		var want, got Answer
		require.NoError(t, json.Unmarshal(head, &want))
		require.True(t, got.readHead(head))
		require.Equal(t, want, got)
	})
}

func TestAnswerHeadsThatAreDamaged(t *testing.T) {
	for _, head := range []string{
		``, `{`, `[]`, `null`, `{"kind":1}`, `{"kind":"json","headers":[]}`, `{"kind":"json","headers":{"a":1}}`,
		`{"kind":"omitted","bytes":"1"}`, `{"kind":"omitted","bytes":1.5}`, `{"kind":"omitted","bytes":99999999999999999999}`,
		`{"kind":"json"} x`, `{"kind":"json","reason":null}`, `{"kind":"other"}`, `{}`,
	} {
		_, err := decodeAnswer(append(binary.AppendUvarint(nil, uint64(len(head))), head...))
		require.ErrorIs(t, err, errAnswerForm, head)
	}
	head := `{"kind":"json","added":[true]}`
	a, err := decodeAnswer(append(append([]byte{byte(len(head))}, head...), `{"id":1}`...))
	require.NoError(t, err)
	require.Equal(t, &Answer{Kind: ResultJSON, Data: []byte(`{"id":1}`)}, a)
}
