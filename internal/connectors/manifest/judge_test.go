package manifest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

// ruled is small with other rules; each is one line of YAML.
func ruled(t testing.TB, rules ...string) connectors.Connector {
	t.Helper()
	head, rest, ok := strings.Cut(small, "    outcomes:\n")
	require.True(t, ok)
	_, tail, ok := strings.Cut(rest, "    result:")
	require.True(t, ok)
	return mustCompile(t, head+"    outcomes:\n      - "+strings.Join(rules, "\n      - ")+"\n    result:"+tail)
}

func judge(t testing.TB, c connectors.Connector, a connectors.Answer) connectors.Verdict {
	t.Helper()
	v, err := c.Judge(t.Context(), makeOp(`{"id":"x"}`), a)
	require.NoError(t, err)
	return v
}

func answer(status int, body string, headers ...string) connectors.Answer {
	a := connectors.Answer{Status: status, Body: []byte(body), Whole: true, Header: http.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		a.Header.Add(headers[i], headers[i+1])
	}
	return a
}

func TestFirstRuleThatIsTrueWins(t *testing.T) {
	c := ruled(t, "{when: status == 200, is: unknown}", "{when: status == 200, is: succeeded}", "{when: status == 201, is: succeeded}")
	v := judge(t, c, answer(200, "{}"))
	require.Equal(t, connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtRule, Rule: 0}, v)
	require.Equal(t, 2, judge(t, c, answer(201, "{}")).Rule)
	v = judge(t, c, answer(202, "{}"))
	require.Equal(t, connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtNoRule, Rule: connectors.NoRule}, v)
}

func TestRuleThatCannotBeDecidedIsUnknown(t *testing.T) {
	for _, when := range []string{
		`body.done == true`,              // no such member
		`body.list[3] == 1`,              // no such element
		`body.text.done`,                 // not an object
		`has(body.text.done)`,            // not an object: has() does not say false
		`!has(body.text.done)`,           //
		`body.text.?done.orValue(true)`,  // neither does .?
		`body.text`,                      // not a condition
		`body.list + 1 == 2`,             // no such operation
		`body.big + 1 > 0`,               // a number that no number of CEL's holds
		`body.big > 1`,                   //
		`double(body.big) > 1.0`,         //
		`body.bigs[0] * 2.0 > 0.0`,       //
		`body.long == 1`,                 // a number longer than is looked at
		`int(body.text) == 1`,            // not a number
		`headers["x-gone"] == "1"`,       // no such header
		`params.note == 1`,               // left out by the agent
		`body.list.all(x, x.done)`,       //
		`body.list[0] / 0 == 1`,          //
		`body.text.matches(body.broken)`, // a regular expression the vendor sent
	} {
		c := ruled(t, "{when: '"+doubled(when)+"', is: succeeded}", "{when: 'true', is: succeeded}")
		v := judge(t, c, answer(200, `{"text":"t","list":[1,2],"big":184467440737095516160001,"bigs":[184467440737095516160001],"long":`+strings.Repeat("1", 401)+`,"broken":"("}`))
		require.Equal(t, connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtRuleFailed, Rule: 0}, v, when)
	}
}

func TestRulesThatCanBeDecided(t *testing.T) {
	const body = `{"n":1.0,"u":18446744073709551615,"f":1.10,"big":1E400,"same":100.0e+398,"neg":-1e400,"list":[{"a":[1,{"b":null}]}],"twice":1,"twice":2,"t":"\u0041"}`
	for _, when := range []string{
		`body.n == 1 && body.n == 1.0 && body.n == 1u`,
		`body.u == 18446744073709551615u && body.u > body.n`,
		`body.f == 1.1 && body.f < 2`,
		`body.list[0].a[1] == {"b": null}`,
		`{"a": [1, {"b": null}]} in body.list`,
		`body.list == [{"a": [1, {"b": null}]}]`,
		`body.list == body.list && body.list[0] == body.list[0]`,
		`body.list[0] != {"a": [1]}`,
		`body.list.exists(x, x.a.size() == 2)`,
		`body.list.map(x, x.a[0]) == [1]`,
		`(body.list + [1]).size() == 2`,
		`body.big == body.same && body.big != body.f && body.big != 1 && body.big in [body.same]`,
		`body.same != body.list && body.neg != body.big && !(body.big in [1, 2.0])`,
		`body.exists(k, k == "t") && body.size() == 9`,
		`"f" in body && !("g" in body) && has(body.big)`,
		`type(body) == map && type(body.list) == list`,
		`body.twice == 2`, // as in what is copied
		`body.t == "A"`,
		`body.?gone.orValue(true)`,
		`status == 200 || body.gone`, // what is true does not depend on what is not there
		`headers["x-a"] == "1, 2" && !("X-A" in headers)`,
		`op.marker.startsWith("0123") && config == {} && params.id == "x"`,
	} {
		c := ruled(t, "{when: '"+doubled(when)+"', is: succeeded}")
		v := judge(t, c, answer(200, body, "X-A", "1", "X-A", "2"))
		require.Equal(t, connectors.Succeeded, v.Outcome, when)
	}
}

func TestBodyThatIsNoJSONIsNull(t *testing.T) {
	c := ruled(t, "{when: status == 200 && body == null, is: succeeded}")
	for _, a := range []connectors.Answer{
		answer(200, ""), answer(200, "null"), answer(200, " \n"), answer(200, "<html>", "Content-Type", "text/html"),
		answer(200, "%PDF-1.7 \xff", "Content-Type", "application/pdf"), answer(200, "[cut", "Content-Type", "text/plain"),
		answer(200, "", "Content-Type", "application/json", "Content-Length", "0"),
	} {
		v := judge(t, c, a)
		require.Equal(t, connectors.Succeeded, v.Outcome, "%q", a.Body)
	}
	c = ruled(t, "{when: status == 200 && !has(body.errors), is: succeeded}")
	require.Equal(t, connectors.Unknown, judge(t, c, answer(200, "<html>")).Outcome)
	require.Equal(t, connectors.Succeeded, judge(t, c, answer(200, "{}")).Outcome)
}

func TestAnswerThatContradictsItselfIsUnknown(t *testing.T) {
	c := ruled(t, "{when: status < 300, is: succeeded}", "{when: status == 400, is: refused}")
	for _, a := range []connectors.Answer{
		answer(201, `{"id":"x"`, "Content-Type", "application/json"),
		answer(400, `{"id":"x"`, "Content-Type", "application/problem+json; charset=utf-8"),
		answer(201, `{"id":"x"`), answer(201, ` [1,`), answer(201, "{\"id\":\"\xff\"}"),
		answer(201, `<html>`, "Content-Type", "application/json"),
		answer(201, `{} {}`, "Content-Type", "application/json"),
		answer(201, ``, "Content-Type", "application/json"), // cut before the first byte
	} {
		require.Equal(t, connectors.DoubtBody, judge(t, c, a).Doubt, "%q", a.Body)
	}
	for _, a := range []connectors.Answer{
		answer(204, ``, "Content-Type", "application/json"), answer(201, `{}`, "Content-Type", "application/json"), answer(201, `{`, "Content-Type", "text/plain"),
	} {
		require.Equal(t, connectors.Succeeded, judge(t, c, a).Outcome, "%q", a.Body)
	}
}

func TestBodyThatWasNotKept(t *testing.T) {
	c := ruled(t, "{when: status == 201, is: succeeded}", "{when: status == 200 && body == null, is: succeeded}", "{when: status == 400, is: refused, code: body.code, message: body.message}")
	v := judge(t, c, connectors.Answer{Status: 201, Body: []byte(`{"id":"cut`), Header: http.Header{"Content-Type": {"application/json"}}})
	require.Equal(t, connectors.Succeeded, v.Outcome, "the status decides")
	require.Nil(t, v.Result, "a projection of what was not kept would be empty")
	require.Equal(t, connectors.Unknown, judge(t, c, connectors.Answer{Status: 200}).Outcome, "what is not known is not null")
	v = judge(t, c, connectors.Answer{Status: 400})
	require.Equal(t, connectors.Refused, v.Outcome)
	require.Empty(t, v.Code)
}

func TestJSONTooDeepToLookInto(t *testing.T) {
	deep := strings.Repeat("[", 101) + strings.Repeat("]", 101)
	c := ruled(t, "{when: status == 201, is: succeeded}", "{when: status == 200 && body == null, is: succeeded}")
	require.Equal(t, connectors.Succeeded, judge(t, c, answer(201, deep, "Content-Type", "application/json")).Outcome)
	require.Equal(t, connectors.DoubtRuleFailed, judge(t, c, answer(200, deep)).Doubt)
	fine := ruled(t, "{when: body.size() == 1, is: succeeded}")
	require.Equal(t, connectors.Succeeded, judge(t, fine, answer(200, deep[1:201])).Outcome)
}

func TestStatusThatIsNoFinalStatusIsUnknown(t *testing.T) {
	c := ruled(t, "{when: 'true', is: succeeded}")
	for _, status := range []int{-1, 0, 99, 100, 101, 103, 199, 600, 999} {
		require.Equal(t, connectors.DoubtStatus, judge(t, c, answer(status, "")).Doubt, status)
	}
}

func TestWorkOfARuleIsBounded(t *testing.T) {
	c := ruled(t, "{when: 'body.all(x, body.all(y, body.all(z, x + y + z > 0)))', is: succeeded}", "{when: 'body.exists(x, x == -1)', is: succeeded}")
	list := "[" + strings.Repeat("1,", 299) + "1]"
	require.Equal(t, connectors.DoubtRuleFailed, judge(t, c, answer(200, list)).Doubt)
	c = ruled(t, "{when: 'body.exists(x, x == 2)', is: succeeded}")
	list = "[" + strings.Repeat("1,", 9999) + "2]"
	require.Equal(t, connectors.Succeeded, judge(t, c, answer(200, list)).Outcome, "one pass over a long list is fine")
}

func TestJudgeThatIsCancelledIsUnknown(t *testing.T) {
	c := ruled(t, "{when: 'body.all(x, body.all(y, x == y))', is: succeeded}", "{when: 'true', is: succeeded}")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, err := c.Judge(ctx, makeOp(`{"id":"x"}`), answer(200, "["+strings.Repeat("1,", 200)+"1]"))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, connectors.Unknown, v.Outcome)
}

func TestLargeResultsAreNotMultiplied(t *testing.T) {
	c := mustCompile(t, vary(t, "{$: body.id}}", "{$: 'body.list.map(x, body)'}}"))
	body := `{"list":[` + strings.Repeat("1,", 200) + `1],"pad":"` + strings.Repeat("x", 1<<18) + `"}`
	v := judge(t, c, answer(201, body))
	require.Equal(t, connectors.Succeeded, v.Outcome)
	require.Equal(t, `{"id":null}`, string(v.Result))
}

func TestReasonOfARetryableOutcome(t *testing.T) {
	c := ruled(t, "{when: 'body.is == 1', is: retryable, reason: credential, doc: 'https://x.example'}", "{when: 'true', is: retryable, doc: 'https://x.example'}")
	for status, reason := range map[int]connectors.Reason{
		429: connectors.RateLimit, 401: connectors.Credential, 403: connectors.Credential, 503: connectors.Unavailable, 200: connectors.Unavailable,
	} {
		require.Equal(t, reason, judge(t, c, answer(status, `{"is":2}`)).Reason, status)
		require.Equal(t, connectors.Credential, judge(t, c, answer(status, `{"is":1}`)).Reason, status)
	}
}

func TestRetryAfter(t *testing.T) {
	const date, later = "Mon, 04 May 2026 03:02:01 GMT", "Mon, 04 May 2026 03:03:01 GMT"
	standard := ruled(t, "{when: status == 429, is: retryable}")
	own := ruled(t, `{when: status == 429, is: retryable, retry_after: 'headers["x-wait"]'}`)
	computed := ruled(t, `{when: status == 429, is: retryable, retry_after: 'body.ms / 1000.0'}`)
	optional := ruled(t, `{when: status == 429, is: retryable, retry_after: 'headers[?"x-wait"]'}`)
	for i, row := range []struct {
		c    connectors.Connector
		a    connectors.Answer
		want time.Duration
	}{
		{standard, answer(429, "", "Retry-After", "7"), 7 * time.Second},
		{standard, answer(429, "", "Retry-After", "0.5"), 500 * time.Millisecond},
		{standard, answer(429, "", "Retry-After", "-7"), 0},
		{standard, answer(429, "", "Retry-After", "NaN"), 0},
		{standard, answer(429, "", "Retry-After", "soon"), 0},
		{standard, answer(429, "", "Retry-After", "99999999999999999999"), 24 * time.Hour},
		{standard, answer(429, "", "Retry-After", "Inf"), 24 * time.Hour},
		{standard, answer(429, ""), 0},
		{standard, answer(429, "", "Retry-After", later, "Date", date), time.Minute},
		{standard, answer(429, "", "Retry-After", date, "Date", later), 0},
		{standard, answer(429, "", "Retry-After", later), 0}, // judging has no clock
		{own, answer(429, "", "Retry-After", "7", "X-Wait", "8"), 8 * time.Second},
		{own, answer(429, "", "Retry-After", "7"), 0},
		{computed, answer(429, `{"ms":1500.5}`), 1500500 * time.Microsecond},
		{computed, answer(429, `{}`), 0},
		{optional, answer(429, "", "X-Wait", "9"), 9 * time.Second},
		{optional, answer(429, ""), 0},
	} {
		v := judge(t, row.c, row.a)
		require.Equal(t, connectors.Retryable, v.Outcome)
		require.Equal(t, row.want, v.RetryAfter, i)
	}
}

func TestVendorsWordsAreMadeFitToShow(t *testing.T) {
	c := ruled(t, "{when: status == 400, is: refused, code: body.code, message: body.message}")
	for _, row := range []struct{ body, code, message string }{
		{`{"code":"no","message":"it\r\nis \u001b[31mred"}`, "no", "it  is  [31mred"},
		{`{"code":5,"message":true}`, "5", "true"},
		{`{"code":null,"message":{"a":1}}`, "", ""},
		{`{}`, "", ""},
		{`null`, "", ""},
		{fmt.Sprintf(`{"code":%q,"message":%q}`, strings.Repeat("é", 150), strings.Repeat("x", 5000)), strings.Repeat("é", 100), strings.Repeat("x", 1000)},
	} {
		v := judge(t, c, answer(400, row.body))
		require.Equal(t, connectors.Refused, v.Outcome)
		require.Equal(t, row.code, v.Code)
		require.Equal(t, row.message, v.Message)
	}
}

func TestResult(t *testing.T) {
	all := strings.Replace(small, "    result: {id: {$: body.id}}\n", "", 1)
	require.NotEqual(t, small, all)
	v := judge(t, mustCompile(t, all), answer(201, `{"id":1}`))
	require.Equal(t, connectors.Succeeded, v.Outcome)
	require.Nil(t, v.Result, "without a projection the body is the result")

	v = judge(t, mustCompile(t, small), answer(201, `<html>`, "Content-Type", "text/html"))
	require.Equal(t, connectors.Succeeded, v.Outcome)
	require.Nil(t, v.Result)

	located := mustCompile(t, vary(t, "{$: body.id}}", `{$: 'headers["location"]'}}`))
	v = judge(t, located, answer(201, "", "Location", "/things/1"))
	require.Equal(t, `{"id":"/things/1"}`, string(v.Result))

	shown := mustCompile(t, vary(t, "{$: body.id}}", `{$: 'headers'}}`))
	v = judge(t, shown, answer(201, "{}", "X-A", "1", "Set-Cookie", "a=b", "WWW-Authenticate", "Basic"))
	require.Equal(t, `{"id":{"x-a":"1"}}`, string(v.Result))

	v = judge(t, mustCompile(t, small), answer(400, `{"code":"no"}`))
	require.Nil(t, v.Result, "only what was done has a result")
}

func TestRateLimitHeadersThatTheManifestNames(t *testing.T) {
	c := mustCompile(t, vary(t, "actions:\n", "rate_limit: {retry_after: X-Wait, reset_seconds: X-Left, reset_epoch: X-Reset}\nactions:\n"))
	op := makeOp(`{"id":"a"}`)
	const date = "Mon, 04 May 2026 03:02:01 GMT" // 1777863721
	for _, row := range []struct {
		headers []string
		want    time.Duration
	}{
		{[]string{"X-Wait", "7", "Retry-After", "3"}, 7 * time.Second},
		{[]string{"Retry-After", "3", "X-Left", "9"}, 3 * time.Second},
		{[]string{"X-Left", "9", "X-Reset", "1777863800", "Date", date}, 9 * time.Second},
		{[]string{"X-Reset", "1777863781", "Date", date}, time.Minute},
		{[]string{"X-Reset", "1777863781000", "Date", date}, time.Minute},
		{[]string{"X-Reset", "1777863781"}, 0}, // judging has no clock
		{[]string{"X-Reset", "1777863000", "Date", date}, 0},
		{[]string{"X-Reset", "soon", "Date", date}, 0},
		{[]string{"X-Reset", "9999999999", "Date", date}, 24 * time.Hour},
		{nil, 0},
	} {
		v, err := c.Judge(t.Context(), op, answer(429, `{}`, row.headers...))
		require.NoError(t, err)
		require.Equal(t, connectors.Retryable, v.Outcome)
		require.Equal(t, row.want, v.RetryAfter, "%v", row.headers)
	}
}

// The five kinds of auth are read into the contract, each with the credentials a
// connection must have.
func TestEveryKindOfAuth(t *testing.T) {
	for auth, want := range map[string]connectors.Auth{
		"{type: bearer, secret: t}":                           {Type: connectors.Bearer, Secret: "t", Prefix: "Bearer"},
		"{type: bearer, secret: t, prefix: Token}":            {Type: connectors.Bearer, Secret: "t", Prefix: "Token"},
		`{type: bearer, secret: t, prefix: ""}`:               {Type: connectors.Bearer, Secret: "t"},
		"{type: basic, username: u, password: p}":             {Type: connectors.Basic, Username: "u", Password: "p"},
		"{type: api_key, in: header, name: X-Key, secret: k}": {Type: connectors.APIKey, In: "header", Name: "X-Key", Secret: "k"},
		"{type: api_key, in: query, name: key, secret: k}":    {Type: connectors.APIKey, In: "query", Name: "key", Secret: "k"},
		`{type: oauth2_client_credentials, token_url: "https://v.example/t", client_id: i, client_secret: s, scopes: [a, b], client_auth: body}`: {
			Type: connectors.OAuth2ClientCredentials, TokenURL: "https://v.example/t", ClientID: "i", ClientSecret: "s", Scopes: []string{"a", "b"}, ClientAuth: "body"},
		`{type: oauth2_refresh, token_url: "https://v.example/t", client_id: i, client_secret: s, refresh_token: r, rotates: true}`: {
			Type: connectors.OAuth2Refresh, TokenURL: "https://v.example/t", ClientID: "i", ClientSecret: "s", RefreshToken: "r", Rotates: true},
	} {
		c, err := compile(t, vary(t, "{type: bearer, secret: token}", auth))
		require.NoError(t, err, auth)
		require.Equal(t, want, c.Spec().Auth, auth)
	}
	for _, bad := range []string{
		"{type: bearer}", "{type: bearer, secret: t, username: u}", "{type: basic, username: u}", "{type: api_key, in: body, name: n, secret: s}",
		"{type: digest, secret: s}", `{type: oauth2_refresh, token_url: "http://v.example/t", client_id: i, client_secret: s, refresh_token: r}`,
		`{type: oauth2_client_credentials, token_url: "https://v.example/t", client_id: i}`, "{}",
	} {
		_, err := compile(t, vary(t, "{type: bearer, secret: token}", bad))
		require.Error(t, err, bad)
	}
}

// A look-up that is no GET needs the page that says it only reads.
func TestLookupThatPosts(t *testing.T) {
	post := "{request: {method: POST, path: /v1/find, encoding: json, body: {m: {$: op.marker}}}, settle: 10s,"
	get := "{request: {method: GET, path: /v1/things}, settle: 10s,"
	_, err := compile(t, vary(t, get, post))
	require.ErrorContains(t, err, "add reads")
	c := mustCompile(t, vary(t, get, strings.Replace(post, "settle", `reads: "https://v.example/find", settle`, 1)))
	op := makeOp(`{"id":"a"}`)
	steps, err := c.Check(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, "POST", steps[1].Request.Method)
	require.Equal(t, `{"m":"`+marker+`"}`, string(steps[1].Request.Body))
	require.Empty(t, steps[1].Request.Header.Get("Idempotency-Key"), "a look-up carries no key")
}
