package sandbox_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a caller of one vendor over a real socket, without keep-alive, so
// that nothing in net/http sends a request twice.
type client struct {
	t      *testing.T
	server *sandbox.Server
	http   *http.Client
	token  string
}

func start(t *testing.T, o sandbox.Options) *client {
	t.Helper()
	server, err := sandbox.Start("127.0.0.1:0", o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return &client{t: t, server: server, token: "token", http: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
}

func (c *client) send(method, path, body string) (*http.Response, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+path, strings.NewReader(body))
	require.NoError(c.t, err)
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

func (c *client) call(method, path, body string) (int, map[string]any, http.Header) {
	c.t.Helper()
	resp, err := c.send(method, path, body)
	require.NoError(c.t, err)
	defer func() { require.NoError(c.t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	var answer map[string]any
	require.NoError(c.t, json.Unmarshal(text, &answer), "every answer is JSON: %s", text)
	require.Equal(c.t, "application/json", resp.Header.Get("Content-Type"))
	return resp.StatusCode, answer, resp.Header
}

func (c *client) counts(arrivals, committed int) {
	c.t.Helper()
	require.Equal(c.t, sandbox.Count{Arrivals: int64(arrivals), Committed: int64(committed)}, c.server.Count())
	status, answer, _ := c.call(http.MethodGet, "/v1/count", "")
	require.Equal(c.t, http.StatusOK, status)
	require.Equal(c.t, map[string]any{"arrivals": float64(arrivals), "committed": float64(committed)}, answer)
}

func invoice(more string) string {
	return `{"customer":"cus_1","amount":1200,"currency":"EUR"` + more + `}`
}

var fixed = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func TestCreatesAndShowsAnInvoice(t *testing.T) {
	c := start(t, sandbox.Options{Now: fixed})
	want := map[string]any{
		"id": "inv_000001", "object": "invoice", "status": "open", "customer": "cus_1", "amount": 1200.0,
		"currency": "EUR", "memo": "March", "marker": "m1", "created_at": "2026-01-02T03:04:05Z",
	}

	status, answer, _ := c.call(http.MethodPost, "/v1/invoices", invoice(`,"memo":"March","marker":"m1","behave":"ok"`))
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, want, answer)
	c.counts(1, 1)

	status, answer, _ = c.call(http.MethodGet, "/v1/invoices/inv_000001", "")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, want, answer)

	status, answer, _ = c.call(http.MethodGet, "/v1/invoices/inv_000002", "")
	require.Equal(t, http.StatusNotFound, status)
	require.Equal(t, "not_found", answer["error"].(map[string]any)["code"])
}

// The vendor is the honest witness: it never recognises a repeat.
func TestARepeatIsASecondInvoice(t *testing.T) {
	c := start(t, sandbox.Options{})
	for range 2 {
		status, _, _ := c.call(http.MethodPost, "/v1/invoices", invoice(`,"marker":"same"`))
		require.Equal(t, http.StatusCreated, status)
	}
	c.counts(2, 2)
	_, answer, _ := c.call(http.MethodGet, "/v1/invoices?marker=same", "")
	require.Len(t, answer["data"], 2)
}

func TestFindsByMarkerOnly(t *testing.T) {
	c := start(t, sandbox.Options{})
	for _, marker := range []string{"a", "b", "a"} {
		c.call(http.MethodPost, "/v1/invoices", invoice(`,"marker":"`+marker+`"`))
	}
	c.call(http.MethodPost, "/v1/invoices", invoice(``))

	_, answer, _ := c.call(http.MethodGet, "/v1/invoices?marker=a", "")
	var ids []any
	for _, inv := range answer["data"].([]any) {
		ids = append(ids, inv.(map[string]any)["id"])
	}
	require.Equal(t, []any{"inv_000001", "inv_000003"}, ids)

	_, answer, _ = c.call(http.MethodGet, "/v1/invoices?marker=c", "")
	require.Equal(t, []any{}, answer["data"], "an empty list, not null")

	status, _, _ := c.call(http.MethodGet, "/v1/invoices", "")
	require.Equal(t, http.StatusBadRequest, status, "no marker does not mean every invoice")
}

func TestBehaviours(t *testing.T) {
	t.Run("lose_answer commits and cuts the connection", func(t *testing.T) {
		c := start(t, sandbox.Options{})
		resp, err := c.send(http.MethodPost, "/v1/invoices", invoice(`,"behave":"lose_answer","marker":"m"`))
		if err == nil {
			_ = resp.Body.Close()
		}
		require.Error(t, err)
		c.counts(1, 1)
		_, answer, _ := c.call(http.MethodGet, "/v1/invoices?marker=m", "")
		require.Len(t, answer["data"], 1)
	})
	for behave, want := range map[string]struct {
		status int
		code   string
	}{
		sandbox.FailBeforeCommit: {http.StatusInternalServerError, "internal"},
		sandbox.Refuse:           {http.StatusUnprocessableEntity, "refused"},
		sandbox.RateLimit:        {http.StatusTooManyRequests, "rate_limited"},
	} {
		t.Run(behave+" commits nothing", func(t *testing.T) {
			c := start(t, sandbox.Options{})
			status, answer, header := c.call(http.MethodPost, "/v1/invoices", invoice(`,"behave":"`+behave+`"`))
			require.Equal(t, want.status, status)
			require.Equal(t, want.code, answer["error"].(map[string]any)["code"])
			require.NotEmpty(t, answer["error"].(map[string]any)["message"])
			if behave == sandbox.RateLimit {
				require.Equal(t, "1", header.Get("Retry-After"))
			}
			c.counts(1, 0)
		})
	}
}

// waiter stands for time.After: the test says when the time has passed.
type waiter struct {
	asked chan time.Duration
	pass  chan time.Time
}

func newWaiter() *waiter {
	return &waiter{asked: make(chan time.Duration, 1), pass: make(chan time.Time)}
}

func (w *waiter) after(d time.Duration) <-chan time.Time {
	w.asked <- d
	return w.pass
}

func TestSlowAnswersAfterTheDelay(t *testing.T) {
	w := newWaiter()
	c := start(t, sandbox.Options{After: w.after})
	done := make(chan int)
	go func() {
		status, _, _ := c.call(http.MethodPost, "/v1/invoices", invoice(`,"behave":"slow","delay_ms":1500`))
		done <- status
	}()
	require.Equal(t, 1500*time.Millisecond, <-w.asked)
	require.Equal(t, sandbox.Count{Arrivals: 1}, c.server.Count(), "it arrived, and is not committed yet")
	w.pass <- time.Time{}
	require.Equal(t, http.StatusCreated, <-done)
	c.counts(1, 1)
}

func TestSlowCommitsAlthoughItsCallerWentAway(t *testing.T) {
	w := newWaiter()
	committed := make(chan struct{})
	c := start(t, sandbox.Options{After: w.after, Now: func() time.Time { close(committed); return fixed() }})
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.server.URL, "http://"))
	require.NoError(t, err)
	body := invoice(`,"behave":"slow","delay_ms":1500`)
	_, err = fmt.Fprintf(conn, "POST /v1/invoices HTTP/1.1\r\nHost: v\r\nAuthorization: Bearer x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(t, err)
	<-w.asked
	require.NoError(t, conn.Close())

	w.pass <- time.Time{}
	<-committed
	c.counts(1, 1)
}

func TestClosingEndsTheWaitWithoutACommit(t *testing.T) {
	w := newWaiter()
	c := start(t, sandbox.Options{After: w.after})
	failed := make(chan error)
	go func() {
		resp, err := c.send(http.MethodPost, "/v1/invoices", invoice(`,"behave":"slow","delay_ms":600000`))
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
	}()
	<-w.asked
	require.NoError(t, c.server.Close())
	require.Error(t, <-failed)
	require.Equal(t, sandbox.Count{Arrivals: 1}, c.server.Count())
	require.NoError(t, c.server.Close(), "twice is fine")
}

func TestRefusesBadOrdersWithoutACommit(t *testing.T) {
	c := start(t, sandbox.Options{})
	bad := map[string]string{
		"not JSON":        `customer=1`,
		"an array":        `[]`,
		"unknown member":  invoice(`,"colour":"red"`),
		"two values":      invoice(``) + `{}`,
		"no customer":     `{"amount":1,"currency":"EUR"}`,
		"no amount":       `{"customer":"c","currency":"EUR"}`,
		"zero":            `{"customer":"c","amount":0,"currency":"EUR"}`,
		"a fraction":      `{"customer":"c","amount":1.5,"currency":"EUR"}`,
		"a string amount": `{"customer":"c","amount":"1","currency":"EUR"}`,
		"no currency":     `{"customer":"c","amount":1}`,
		"long currency":   `{"customer":"c","amount":1,"currency":"EURO"}`,
		"long memo":       invoice(`,"memo":"` + strings.Repeat("x", 501) + `"`),
		"long marker":     invoice(`,"marker":"` + strings.Repeat("x", 501) + `"`),
		"odd behaviour":   invoice(`,"behave":"explode"`),
		"negative delay":  invoice(`,"delay_ms":-1`),
		"endless delay":   invoice(`,"delay_ms":600001`),
		"too large":       invoice(`,"memo":"` + strings.Repeat("x", 2<<20) + `"`),
	}
	for name, body := range bad {
		t.Run(name, func(t *testing.T) {
			status, answer, _ := c.call(http.MethodPost, "/v1/invoices", body)
			require.Equal(t, http.StatusBadRequest, status)
			require.Equal(t, "invalid_request", answer["error"].(map[string]any)["code"])
		})
	}
	c.counts(len(bad), 0)
}

func TestWantsACredential(t *testing.T) {
	for name, tt := range map[string]struct {
		configured, sent string
		want             int
	}{
		"none":                     {"", "", http.StatusUnauthorized},
		"any":                      {"", "whatever", http.StatusCreated},
		"the configured one":       {"right", "right", http.StatusCreated},
		"another":                  {"right", "wrong", http.StatusUnauthorized},
		"none, one is configured":  {"right", "", http.StatusUnauthorized},
		"a part of the configured": {"right", "righ", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, sandbox.Options{Token: tt.configured})
			c.token = tt.sent
			status, _, _ := c.call(http.MethodPost, "/v1/invoices", invoice(``))
			require.Equal(t, tt.want, status)
			committed := int64(0)
			if tt.want == http.StatusCreated {
				committed = 1
			}
			require.Equal(t, sandbox.Count{Arrivals: 1, Committed: committed}, c.server.Count(), "refused callers arrived too")
		})
	}
}

func TestWantsABearerCredential(t *testing.T) {
	c := start(t, sandbox.Options{})
	for _, header := range []string{"Bearer", "Basic dXNlcjpwYXNz", "token"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.server.URL+"/v1/count", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", header)
		resp, err := c.http.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUnauthorized, resp.StatusCode, header)
		require.Equal(t, "Bearer", resp.Header.Get("WWW-Authenticate"))
	}
}

func TestLedgerIsBounded(t *testing.T) {
	c := start(t, sandbox.Options{Capacity: 3})
	for range 5 {
		c.call(http.MethodPost, "/v1/invoices", invoice(`,"marker":"m"`))
	}
	_, answer, _ := c.call(http.MethodGet, "/v1/invoices?marker=m", "")
	require.Len(t, answer["data"], 3)
	status, _, _ := c.call(http.MethodGet, "/v1/invoices/inv_000002", "")
	require.Equal(t, http.StatusNotFound, status)
	status, _, _ = c.call(http.MethodGet, "/v1/invoices/inv_000005", "")
	require.Equal(t, http.StatusOK, status)
	c.counts(5, 5)
}

func TestManyAtOnceAreAllCounted(t *testing.T) {
	c := start(t, sandbox.Options{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { c.call(http.MethodPost, "/v1/invoices", invoice(`,"marker":"m"`)) })
	}
	wg.Wait()
	c.counts(20, 20)
}

func TestListensOnLoopbackOnly(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		_, err := sandbox.Start(addr, sandbox.Options{})
		require.ErrorIs(t, err, sandbox.ErrNotLoopback, addr)
	}
	_, err := sandbox.Start("nonsense", sandbox.Options{})
	require.Error(t, err)

	c := start(t, sandbox.Options{})
	_, err = sandbox.Start(strings.TrimPrefix(c.server.URL, "http://"), sandbox.Options{})
	require.Error(t, err, "the port is taken")
}

func FuzzOrder(f *testing.F) {
	f.Add(invoice(``))
	f.Add(invoice(`,"behave":"refuse","delay_ms":5`))
	f.Add(`{"amount":9223372036854775808}`)
	f.Add(`null`)
	v := sandbox.New(sandbox.Options{Capacity: 10, After: func(time.Duration) <-chan time.Time {
		now := make(chan time.Time, 1)
		now <- time.Time{}
		return now
	}})
	f.Fuzz(func(t *testing.T, body string) {
		before := v.Count()
		status := serve(t, v, body)
		after := v.Count()
		require.Equal(t, before.Arrivals+1, after.Arrivals)
		// 0: the connection was cut, which only follows a commit here.
		done := status == http.StatusCreated || status == 0
		require.Equal(t, done, after.Committed == before.Committed+1)
	})
}
