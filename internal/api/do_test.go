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
	seventeen := `{` + pair + `,"meta":{` + strings.TrimSuffix(strings.Repeat(`"k%":"v",`, 17), ",") + `}}`
	for i := range 17 {
		seventeen = strings.Replace(seventeen, "%", string(rune('a'+i)), 1)
	}
	long := strings.Repeat("x", 257)
	for _, row := range []struct {
		name, body, code string
		pointers         []string
		options          []func(*http.Request)
	}{
		{name: "empty body", body: "", code: "invalid_json", options: []func(*http.Request){with("Content-Type", "application/json")}},
		{name: "blank body", body: " ", code: "invalid_json", pointers: []string{""}},
		{name: "cut", body: `{"connection":"c"`, code: "invalid_json", pointers: []string{""}},
		{name: "two values", body: `{` + pair + `}{}`, code: "invalid_json", pointers: []string{""}},
		{name: "byte-order mark", body: "\xef\xbb\xbf{" + pair + "}", code: "invalid_json", pointers: []string{""}},
		{name: "not UTF-8", body: "{" + pair + ",\"body\":{\"a\":\"\xff\"}}", code: "invalid_json", pointers: []string{"/body/a"}},
		{name: "null", body: `null`, code: "invalid_request", pointers: []string{""}},
		{name: "array", body: `[]`, code: "invalid_request", pointers: []string{""}},
		{name: "no connection", body: `{"action":"a"}`, code: "invalid_request", pointers: []string{"/connection"}},
		{name: "nothing", body: `{}`, code: "invalid_request", pointers: []string{"/connection", "/action"}},
		{name: "empty action", body: `{"connection":"c","action":""}`, code: "invalid_request", pointers: []string{"/action"}},
		{name: "null connection", body: `{"connection":null,"action":"a"}`, code: "invalid_request", pointers: []string{"/connection"}},
		{name: "number as connection", body: `{"connection":1,"action":"a"}`, code: "invalid_request", pointers: []string{"/connection"}},
		{name: "unknown members", body: `{` + pair + `,"x":1,"y/z":2}`, code: "invalid_request", pointers: []string{"/x", "/y~1z"}},
		{name: "other case", body: `{"Connection":"c","action":"a"}`, code: "invalid_request", pointers: []string{"/Connection"}},
		{name: "duplicate", body: `{` + pair + `,"action":"b"}`, code: "invalid_request", pointers: []string{"/action"}},
		{name: "duplicate escaped", body: `{` + pair + `,"a\u0063tion":"b"}`, code: "invalid_request", pointers: []string{"/action"}},
		{name: "duplicate body", body: `{` + pair + `,"body":{},"body":{}}`, code: "invalid_request", pointers: []string{"/body"}},
		{name: "duplicate in body", body: `{` + pair + `,"body":{"a":1,"a":1}}`, code: "invalid_body", pointers: []string{"/body/a"}},
		{name: "inexact number", body: `{` + pair + `,"body":{"a":9007199254740993}}`, code: "invalid_body", pointers: []string{"/body/a"}},
		{name: "lone surrogate", body: `{` + pair + `,"body":{"a":"\ud800"}}`, code: "invalid_body", pointers: []string{"/body/a"}},
		{name: "null body", body: `{` + pair + `,"body":null}`, code: "invalid_body", pointers: []string{"/body"}},
		{name: "array body", body: `{` + pair + `,"body":[1]}`, code: "invalid_body", pointers: []string{"/body"}},
		{name: "string body", body: `{` + pair + `,"body":"{}"}`, code: "invalid_body", pointers: []string{"/body"}},
		{name: "string as flag", body: `{` + pair + `,"dry_run":"true"}`, code: "invalid_request", pointers: []string{"/dry_run"}},
		{name: "null flag", body: `{` + pair + `,"retry_refused":null}`, code: "invalid_request", pointers: []string{"/retry_refused"}},
		{name: "meta of numbers", body: `{` + pair + `,"meta":{"a":1}}`, code: "invalid_request", pointers: []string{"/meta/a"}},
		{name: "null meta", body: `{` + pair + `,"meta":null}`, code: "invalid_request", pointers: []string{"/meta"}},
		{name: "too many labels", body: seventeen, code: "invalid_request", pointers: []string{"/meta"}},
		{name: "long label", body: `{` + pair + `,"meta":{"a":"` + long + `"}}`, code: "invalid_request", pointers: []string{"/meta"}},
		{name: "long label name", body: `{` + pair + `,"meta":{"` + long + `":"a"}}`, code: "invalid_request", pointers: []string{"/meta"}},

		{name: "null key", body: `{` + pair + `,"idempotency_key":null}`, code: "invalid_request", pointers: []string{"/idempotency_key"}},
		{name: "empty key", body: `{` + pair + `,"idempotency_key":""}`, code: "invalid_key", pointers: []string{"/idempotency_key"}},
		{name: "blank key", body: `{` + pair + `,"idempotency_key":" a"}`, code: "invalid_key", pointers: []string{"/idempotency_key"}},
		{name: "key not ASCII", body: `{` + pair + `,"idempotency_key":"é"}`, code: "invalid_key", pointers: []string{"/idempotency_key"}},
		{name: "long key", body: `{` + pair + `,"idempotency_key":"` + strings.Repeat("k", 256) + `"}`, code: "invalid_key", pointers: []string{"/idempotency_key"}},
		{name: "header and member differ", body: `{` + pair + `,"idempotency_key":"a"}`, code: "invalid_key",
			options: []func(*http.Request){with("Idempotency-Key", "b")}},
		{name: "repeated header", body: smallest, code: "invalid_key",
			options: []func(*http.Request){with("Idempotency-Key", "a", "a")}},
		{name: "empty header", body: smallest, code: "invalid_key",
			options: []func(*http.Request){with("Idempotency-Key", "")}},
		{name: "bad quoting", body: smallest, code: "invalid_key",
			options: []func(*http.Request){with("Idempotency-Key", `"a`)}},

		{name: "no type", body: smallest, code: "unsupported_media_type", options: []func(*http.Request){with("Content-Type")}},
		{name: "form", body: smallest, code: "unsupported_media_type", options: []func(*http.Request){with("Content-Type", "application/x-www-form-urlencoded")}},
		{name: "other JSON", body: smallest, code: "unsupported_media_type", options: []func(*http.Request){with("Content-Type", "application/merge-patch+json")}},
		{name: "other charset", body: smallest, code: "unsupported_media_type", options: []func(*http.Request){with("Content-Type", "application/json; charset=latin1")}},
		{name: "other parameter", body: smallest, code: "unsupported_media_type", options: []func(*http.Request){with("Content-Type", "application/json; profile=x")}},
		{name: "broken type", body: smallest, code: "unsupported_media_type", options: []func(*http.Request){with("Content-Type", "application/json;;=")}},
		{name: "two types", body: smallest, code: "unsupported_media_type", options: []func(*http.Request){with("Content-Type", "application/json", "application/json")}},
		{name: "gzip", body: smallest, code: "unsupported_media_type", options: []func(*http.Request){with("Content-Encoding", "gzip")}},
		{name: "too large", body: `{` + pair + `,"body":{"a":"` + strings.Repeat("x", maxBody) + `"}}`, code: "too_large"},
		{name: "too large, length unknown", body: `{` + pair + `,"body":{"a":"` + strings.Repeat("x", maxBody) + `"}}`, code: "too_large",
			options: []func(*http.Request){func(r *http.Request) { r.ContentLength = -1 }}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, a := decoded(t, row.body, row.options...)
			require.Nil(t, got, "nothing reaches the path of a write")
			require.Equal(t, row.code, a.code(), "%s", a.body)
			require.Equal(t, "false", a.header.Get("Idempotent-Replayed"))
			require.Equal(t, row.pointers, pointersOf(a))
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
