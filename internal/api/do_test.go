package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/api/apitest"
	"holdfast.dev/gateway/internal/audit"
)

// decoded runs a `do` and returns what reached the path of a write, nil if
// nothing did.
func decoded(t *testing.T, body string, options ...func(*http.Request)) (*actions.Request, answer) {
	t.Helper()
	g := newGateway(t)
	var got *actions.Request
	g.do = func(_ context.Context, r actions.Request) (actions.Reply, error) {
		got = &r
		return actions.Reply{}, &actions.Error{Code: actions.NotSent}
	}
	a := g.send("POST", "/v1/do", body, options...)
	return got, a
}

func TestDoDecodesEverything(t *testing.T) {
	g := newGateway(t)
	var got actions.Request
	g.do = func(_ context.Context, r actions.Request) (actions.Reply, error) {
		got = r
		return actions.Reply{}, &actions.Error{Code: actions.NotSent}
	}
	a := g.send("POST", "/v1/do?connection=other&dry_run=true", `{
		"connection": "billing", "action": "create_invoice",
		"body": { "amount" : 1.0, "list":[ ], "s":"<&>\u00e9" },
		"idempotency_key": "k 1", "retry_refused": true, "allow_duplicate": true, "dry_run": false,
		"meta": {"run": "r1"}}`, with("Prefer", "wait=7"), with("Idempotency-Key", `"k 1"`), with("Request-Id", "req_mine"))
	require.Equal(t, 503, a.status)

	require.Equal(t, someTenant("do", "read", "resolve", "manage"), got.Principal)
	require.Equal(t, "billing", got.Connection, "the query is not read")
	require.Equal(t, "create_invoice", got.Action)
	require.Equal(t, `{ "amount" : 1.0, "list":[ ], "s":"<&>\u00e9" }`, string(got.Body), "raw bytes")
	require.Equal(t, "k 1", got.Key)
	require.True(t, got.RetryRefused)
	require.True(t, got.AllowDuplicate)
	require.False(t, got.DryRun)
	require.Equal(t, map[string]string{"run": "r1"}, got.Meta)
	require.Equal(t, 7*time.Second, got.Wait)
	require.Equal(t, "rest", got.Front)
	require.Equal(t, a.header.Get("Request-Id"), got.RequestID)
	require.NotEqual(t, "req_mine", got.RequestID, "nothing is taken from the client")
}

func TestDoDefaults(t *testing.T) {
	g := newGateway(t)
	var got actions.Request
	g.do = func(_ context.Context, r actions.Request) (actions.Reply, error) {
		got = r
		return actions.Reply{}, &actions.Error{Code: actions.NotSent}
	}
	for _, header := range []string{"application/json", "application/json; charset=utf-8", `Application/JSON;Charset="UTF-8"`} {
		require.Equal(t, 503, g.send("POST", "/v1/do", smallest, with("Content-Type", header)).status, header)
	}
	require.Nil(t, got.Body)
	require.Empty(t, got.Key)
	require.Zero(t, got.Wait)
	require.Nil(t, got.Meta)
}

func TestDoRefusesBeforeAnythingIsDone(t *testing.T) {
	const pair = `"connection":"c","action":"a"`
	type row struct {
		apitest.Refusal
		options []func(*http.Request)
	}
	rows := []row{
		{apitest.Refusal{Name: "empty body", Body: "", Code: "invalid_json"}, []func(*http.Request){with("Content-Type", "application/json")}},
		{apitest.Refusal{Name: "header and member differ", Body: `{` + pair + `,"idempotency_key":"a"}`, Code: "invalid_key"}, []func(*http.Request){with("Idempotency-Key", "b")}},
		{apitest.Refusal{Name: "repeated header", Body: smallest, Code: "invalid_key"}, []func(*http.Request){with("Idempotency-Key", "a", "a")}},
		{apitest.Refusal{Name: "empty header", Body: smallest, Code: "invalid_key"}, []func(*http.Request){with("Idempotency-Key", "")}},
		{apitest.Refusal{Name: "bad quoting", Body: smallest, Code: "invalid_key"}, []func(*http.Request){with("Idempotency-Key", `"a`)}},
		{apitest.Refusal{Name: "no type", Body: smallest, Code: "unsupported_media_type"}, []func(*http.Request){with("Content-Type")}},
		{apitest.Refusal{Name: "form", Body: smallest, Code: "unsupported_media_type"}, []func(*http.Request){with("Content-Type", "application/x-www-form-urlencoded")}},
		{apitest.Refusal{Name: "other JSON", Body: smallest, Code: "unsupported_media_type"}, []func(*http.Request){with("Content-Type", "application/merge-patch+json")}},
		{apitest.Refusal{Name: "other charset", Body: smallest, Code: "unsupported_media_type"}, []func(*http.Request){with("Content-Type", "application/json; charset=latin1")}},
		{apitest.Refusal{Name: "other parameter", Body: smallest, Code: "unsupported_media_type"}, []func(*http.Request){with("Content-Type", "application/json; profile=x")}},
		{apitest.Refusal{Name: "broken type", Body: smallest, Code: "unsupported_media_type"}, []func(*http.Request){with("Content-Type", "application/json;;=")}},
		{apitest.Refusal{Name: "two types", Body: smallest, Code: "unsupported_media_type"}, []func(*http.Request){with("Content-Type", "application/json", "application/json")}},
		{apitest.Refusal{Name: "gzip", Body: smallest, Code: "unsupported_media_type"}, []func(*http.Request){with("Content-Encoding", "gzip")}},
		{apitest.Refusal{Name: "too large", Body: `{` + pair + `,"body":{"a":"` + strings.Repeat("x", maxBody) + `"}}`, Code: "too_large"}, nil},
		{apitest.Refusal{Name: "too large, length unknown", Body: `{` + pair + `,"body":{"a":"` + strings.Repeat("x", maxBody) + `"}}`, Code: "too_large"}, []func(*http.Request){func(r *http.Request) { r.ContentLength = -1 }}},
	}
	for _, r := range apitest.Refusals() {
		rows = append(rows, row{r, nil})
	}
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			got, a := decoded(t, row.Body, row.options...)
			require.Nil(t, got, "nothing reaches the path of a write")
			require.Equal(t, row.Code, a.code(), "%s", a.body)
			require.Equal(t, "false", a.header.Get("Idempotent-Replayed"))
			require.Equal(t, row.Pointers, pointersOf(a))
		})
	}
}

func pointersOf(a answer) []string {
	list, _ := a.json()["errors"].([]any)
	var pointers []string
	for _, e := range list {
		pointers = append(pointers, e.(map[string]any)["pointer"].(string))
	}
	return pointers
}

// A body of exactly the limit is taken, one byte more is not.
func TestBodyLimitIsExact(t *testing.T) {
	fill := func(n int) string {
		head := `{"connection":"c","action":"a","body":{"a":"`
		return head + strings.Repeat("x", n-len(head)-3) + `"}}`
	}
	got, a := decoded(t, fill(maxBody))
	require.NotNil(t, got)
	require.Equal(t, 503, a.status)
	_, a = decoded(t, fill(maxBody+1))
	require.Equal(t, 413, a.status)
}

// A body that says it is too large is not even begun.
func TestTooLargeABodyIsNotRead(t *testing.T) {
	got, a := decoded(t, smallest, func(r *http.Request) {
		r.ContentLength = maxBody + 1
		r.Body = io.NopCloser(untouchable{t})
	})
	require.Nil(t, got)
	require.Equal(t, "too_large", a.code())
	require.Contains(t, a.json()["detail"], "2048 bytes")
}

func TestMissingAndEmptyAreToldApart(t *testing.T) {
	_, a := decoded(t, `{"connection":""}`)
	require.Contains(t, string(a.body), `"errors":[{"pointer":"/connection","detail":"this must not be empty"},{"pointer":"/action","detail":"this member is missing"}]`)
}

// What a client that goes away has sent so far is not what it meant, even if
// it happens to be sound JSON.
func TestCutBodyIsNotTaken(t *testing.T) {
	got, a := decoded(t, smallest, func(r *http.Request) {
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(smallest), iotestErr{}))
	})
	require.Nil(t, got)
	require.Equal(t, "invalid_request", a.code())
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The body is not touched before the caller is known.
func TestAuthenticationComesBeforeTheBody(t *testing.T) {
	g := newGateway(t)
	a := g.send("POST", "/v1/do", smallest, with("Authorization"), func(r *http.Request) { r.Body = io.NopCloser(untouchable{t}) })
	require.Equal(t, "unauthenticated", a.code())
	require.Equal(t, "false", a.header.Get("Idempotent-Replayed"))
	a = g.send("POST", "/v1/do", smallest, as(readKey), func(r *http.Request) { r.Body = io.NopCloser(untouchable{t}) })
	require.Equal(t, "forbidden", a.code())
}

type untouchable struct{ t *testing.T }

func (u untouchable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// The work goes on when the caller hangs up, so the api hands the caller's
// context on and does not decide that itself; the answer is written all the same.
func TestDoGetsTheContextOfTheRequest(t *testing.T) {
	g := newGateway(t)
	ctx, hangUp := context.WithCancel(t.Context())
	g.do = func(ctx context.Context, _ actions.Request) (actions.Reply, error) {
		hangUp()
		<-ctx.Done()
		return actions.Reply{}, &actions.Error{Code: actions.NotSent}
	}
	a := g.send("POST", "/v1/do", smallest, func(r *http.Request) { *r = *r.WithContext(ctx) })
	require.Equal(t, 503, a.status)
}

func TestMetaBoundsAreThoseOfTheAudit(t *testing.T) {
	require.Equal(t, 16, audit.MaxMeta)
	require.Equal(t, 256, audit.MaxMetaBytes)
}

func FuzzDecodeDo(f *testing.F) {
	f.Add([]byte(smallest), "", "")
	f.Add([]byte(`{"connection":"c","action":"a","body":{"a":[1.0,{}]},"meta":{"x":"y"},"idempotency_key":"k"}`), `"k"`, "wait=3")
	f.Add([]byte(`{"connection":"c","action":"a","body":null}`), "k", `wait="9", foo; wait=2`)
	f.Add([]byte(`{"connection":"c","connection":"d"}`), `"`, ",;=")
	f.Fuzz(func(t *testing.T, raw []byte, key, prefer string) {
		h := http.Header{"Prefer": {prefer}}
		if key != "" {
			h.Set("Idempotency-Key", key)
		}
		req, err := api.DecodeDo(raw, h)
		if err != nil {
			return
		}
		require.NotEmpty(t, req.Connection)
		require.NotEmpty(t, req.Action)
		require.LessOrEqual(t, req.Wait, 30*time.Second)
		require.GreaterOrEqual(t, req.Wait, time.Duration(0))
		require.LessOrEqual(t, len(req.Meta), 16)
		require.LessOrEqual(t, len(req.Key), 255)
		if req.Body != nil {
			require.Equal(t, byte('{'), req.Body[0])
			require.Contains(t, string(raw), string(req.Body), "the bytes are the agent's")
		}
	})
}

func TestPreferWait(t *testing.T) {
	for _, row := range []struct {
		header []string
		want   time.Duration
	}{
		{nil, 0},
		{[]string{"wait=10"}, 10 * time.Second},
		{[]string{"WAIT = 10"}, 10 * time.Second},
		{[]string{`wait="10"`}, 10 * time.Second},
		{[]string{"respond-async, wait=10"}, 10 * time.Second},
		{[]string{"respond-async", "wait=10"}, 10 * time.Second},
		{[]string{"wait=10; foo=1"}, 10 * time.Second},
		{[]string{"wait=10, wait=20"}, 10 * time.Second},
		{[]string{"wait=0"}, 0},
		{[]string{"wait=30"}, 30 * time.Second},
		{[]string{"wait=31"}, 30 * time.Second},
		{[]string{"wait=99999999999999999999"}, 30 * time.Second},
		{[]string{`foo="a, wait=3, b"`}, 0},
		{[]string{`foo="a\", wait=3, b"`}, 0},
		{[]string{`foo="a;", wait=3`}, 3 * time.Second},
		{[]string{`foo; wait=3`}, 0},
		{[]string{"wait"}, 0},
		{[]string{"wait="}, 0},
		{[]string{"wait=-1"}, 0},
		{[]string{"wait=+1"}, 0},
		{[]string{"wait=1.5"}, 0},
		{[]string{"wait=x, wait=3"}, 0},
		{[]string{"waiting=3"}, 0},
		{[]string{""}, 0},
	} {
		require.Equal(t, row.want, api.PreferWait(row.header), "%q", row.header)
	}
}
