package manifest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

func TestCheckIsPlannedInOrder(t *testing.T) {
	c := mustCompile(t, vary(t, "{method: GET, path: /v1/things}", "{method: GET, path: '/v1/things/{op.vendor_key}', query: {since: {$: op.started_unix}}}"))
	op := makeOp(`{"id":"x"}`)
	op.BaseURL = "http://127.0.0.1:9"
	steps, err := c.Check(t.Context(), op)
	require.NoError(t, err)
	require.Len(t, steps, 2)
	require.Equal(t, connectors.CheckStep{CheckRule: connectors.CheckRule{Kind: connectors.Resend, Within: 23 * time.Hour}}, steps[0])
	require.Equal(t, connectors.CheckStep{
		CheckRule: connectors.CheckRule{
			Kind: connectors.Lookup, Settle: 10 * time.Second, Absent: connectors.StillUnknown,
			Match: "body.data.filter(x, x.m == op.marker)", ByMarker: true,
		},
		Request: connectors.Request{
			Method: "GET", URL: "http://127.0.0.1:9/v1/things/key-1?since=1777856521",
			Header: http.Header{"Accept": {"application/json"}},
		},
	}, steps[1])
}

func TestLookup(t *testing.T) {
	c := mustCompile(t, small)
	one := `{"m":"` + marker + `","id":1.10}`
	for _, row := range []struct {
		name   string
		a      connectors.Answer
		kind   connectors.FoundKind
		result string
	}{
		{"one", answer(200, `{"data":[{"m":"other"},`+one+`]}`), connectors.FoundOne, `{"id":1.10}`},
		{"none", answer(200, `{"data":[]}`), connectors.FoundNone, ""},
		{"none of others", answer(200, `{"data":[{"m":"other"}]}`), connectors.FoundNone, ""},
		{"many", answer(200, `{"data":[`+one+`,`+one+`]}`), connectors.FoundMany, ""},
		{"not there", answer(404, `{"data":[]}`), connectors.Doubtful, ""},
		{"vendor down", answer(503, `{"data":[]}`), connectors.Doubtful, ""},
		{"elsewhere", answer(302, `{"data":[]}`), connectors.Doubtful, ""},
		{"status of no meaning", answer(100, `{"data":[]}`), connectors.Doubtful, ""},
		{"another shape", answer(200, `{"items":[]}`), connectors.Doubtful, ""},
		{"an element of another shape", answer(200, `{"data":[{}]}`), connectors.Doubtful, ""},
		{"not a list", answer(200, `{"data":{"a":1}}`), connectors.Doubtful, ""},
		{"cut", answer(200, `{"data":[`, "Content-Type", "application/json"), connectors.Doubtful, ""},
		{"HTML", answer(200, `<html>`), connectors.Doubtful, ""},
		{"not kept", connectors.Answer{Status: 200, Body: []byte(`{"data":[]}`)}, connectors.Doubtful, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			found, err := c.MatchLookup(t.Context(), makeOp(`{"id":"x"}`), 1, row.a)
			require.NoError(t, err)
			require.Equal(t, row.kind, found.Kind)
			require.Equal(t, row.result, string(found.Result))
		})
	}
	for _, step := range []int{-1, 0, 2} { // none, the resend, none
		_, err := c.MatchLookup(t.Context(), makeOp(`{"id":"x"}`), step, answer(200, `{"data":[]}`))
		require.Error(t, err)
	}
}

func TestLookupByIDMayAskAboutTheStatus(t *testing.T) {
	c := mustCompile(t, vary(t, "match: 'body.data.filter(x, x.m == op.marker)', absent: still_unknown",
		"match: 'status == 404 ? [] : [body]', result: {n: {$: 'body.n'}, p: {$: params.id}}, absent: not_performed"))
	op := makeOp(`{"id":"x"}`)
	found, err := c.MatchLookup(t.Context(), op, 1, answer(404, ""))
	require.NoError(t, err)
	require.Equal(t, connectors.FoundNone, found.Kind)
	found, err = c.MatchLookup(t.Context(), op, 1, answer(200, `{"n":1e2}`))
	require.NoError(t, err)
	require.Equal(t, connectors.Found{Kind: connectors.FoundOne, Matches: 1, Result: []byte(`{"n":1e2,"p":"x"}`)}, found)
	require.Equal(t, connectors.NotPerformed, c.Spec().Actions["make"].Checks[1].Absent)
}
