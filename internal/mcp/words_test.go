package mcp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	gateway "holdfast.dev/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Codes after which a write may have been done must never read as if it had not,
// and a code that this package has not heard of is one of them.
func TestFirstWordsOfEveryCode(t *testing.T) {
	description := string(gateway.OpenAPI())
	rows := map[string]string{
		"outcome_unknown":          "UNKNOWN: may have been done; do not send again; check ",
		"twin_unsettled":           "UNKNOWN: ",
		"answer_not_saved":         "ANSWERED, NOT SAVED YET: do not send again",
		"stored_answer_unreadable": "UNKNOWN: ",
		"internal":                 "UNKNOWN: ",
		"never_heard_of":           "UNKNOWN: ",
		"":                         "UNKNOWN: ",
		"in_flight":                "IN FLIGHT: ",
		"vendor_refused":           "NOT DONE: the vendor refused it",
		"vendor_rate_limited":      "NOT DONE: ",
		"vendor_unavailable":       "NOT DONE: ",
		"not_sent":                 "NOT DONE: ",
		"key_reused":               "NOT DONE: ",
		"invalid_json":             "NOT DONE by this call: ",
		"invalid_body":             "NOT DONE by this call: ",
		"forbidden":                "NOT DONE by this call: ",
		"unknown_connection":       "NOT DONE by this call: ",
		"store_unavailable":        "NOT DONE by this call: ",
		"draining":                 "NOT DONE by this call: ",
		"rate_limited":             "NOT DONE by this call: ",
	}
	for code, first := range rows {
		if code != "" && code != "never_heard_of" {
			require.Contains(t, description, code, "it is a code of the API")
		}
		a := answer{status: 500, header: http.Header{}, body: []byte(`{"code":"` + code + `","detail":"Why."}`)}
		r := result(tool{word: wordsOfDo}, a)
		require.True(t, r.IsError, code)
		require.True(t, strings.HasPrefix(wordsOfDo(a).first, first), "%s: %s", code, wordsOfDo(a).first)
	}
}

func TestCodesOfTheField(t *testing.T) {
	for code, want := range map[string]any{"in_flight": codeInProgress, "key_reused": codeConflict, "vendor_refused": nil} {
		r := result(tool{word: wordsOfDo}, answer{status: 400, header: http.Header{}, body: []byte(`{"code":"` + code + `"}`)})
		require.Equal(t, want, r.Meta[metaCode], code)
	}
}

// What is no answer of a gateway says nothing of the write.
func TestAnswersOfSomebodyElse(t *testing.T) {
	for _, body := range []string{"", "<html>", "[]", `{"state":"succeeded"`, `null`} {
		r := result(tool{word: wordsOfDo}, answer{status: 200, header: http.Header{}, body: []byte(body)})
		require.True(t, r.IsError, body)
	}
	require.True(t, wordsOfDo(answer{status: 200, body: []byte(`{}`)}).bad, "a success says so")
	require.True(t, strings.HasPrefix(wordsOfDo(answer{status: 200, body: []byte(`{"state":"held"}`)}).first, "UNKNOWN"))
}

// A handler that breaks off is no answer, and ends no program.
func TestHandlerThatBreaksOff(t *testing.T) {
	c := client{base: "http://gateway", transport: InProcess(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"state":"suc`))
		panic(http.ErrAbortHandler)
	}))}
	_, err := c.call(t.Context(), "POST", "/v1/do", nil)
	require.ErrorIs(t, err, errNoAnswer)
}
