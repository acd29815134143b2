package wire_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
	"holdfast.dev/gateway/internal/wire"
)

// What leaves is what was asked for, and nothing of the process around it.
func TestRequestOnTheWire(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	req := wire.Request{
		Method: "POST", URL: v.URL() + "/a%2Fb/c?x=1&y=%20",
		Header: http.Header{"content-type": {"application/json"}, "X-Two": {"1", "2"}, "Accept-Encoding": {"br"}},
		Body:   []byte(`{"n":15947634569000323}`),
	}
	require.Equal(t, wire.Answered, client(t, v).Send(t.Context(), req, nil).Phase)
	a := v.Requests()[0]
	require.Equal(t, "POST", a.Method)
	require.Equal(t, "/a%2Fb/c?x=1&y=%20", a.Target)
	require.Equal(t, v.Addr(), a.Host)
	require.Equal(t, `{"n":15947634569000323}`, string(a.Body))
	require.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"23"}, "X-Two": {"1", "2"},
		"User-Agent": {"holdfast/1"}, "Accept-Encoding": {"gzip"},
	}, a.Header)
}

func TestBodylessRequestsOnTheWire(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	c := client(t, v)
	for _, method := range []string{"DELETE", "GET", "POST", "PUT", "PATCH"} {
		before := len(v.Requests())
		require.Equal(t, wire.Answered, c.Send(t.Context(), wire.Request{Method: method, URL: v.URL()}, nil).Phase)
		a := v.Requests()[before]
		require.Equal(t, method, a.Method)
		require.Empty(t, a.Body)
		require.NotContains(t, a.Header, "Transfer-Encoding")
		if method == "DELETE" || method == "GET" {
			require.NotContains(t, a.Header, "Content-Length")
		} else {
			require.Equal(t, "0", a.Header.Get("Content-Length"))
		}
	}
}

// What cannot leave as asked is refused before a connection is made.
func TestRefusedBeforeDialling(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	cases := map[string]struct {
		change func(*wire.Request)
		reason string
	}{
		"no method":        {func(r *wire.Request) { r.Method = "" }, wire.ReasonInvalidMethod},
		"method injection": {func(r *wire.Request) { r.Method = "GET / HTTP/1.1\r\nX" }, wire.ReasonInvalidMethod},
		"connect":          {func(r *wire.Request) { r.Method = "connect" }, wire.ReasonInvalidMethod},
		"relative":         {func(r *wire.Request) { r.URL = "/v1" }, wire.ReasonInvalidURL},
		"no host":          {func(r *wire.Request) { r.URL = "http:///v1" }, wire.ReasonInvalidURL},
		"only a port":      {func(r *wire.Request) { r.URL = "http://:80/" }, wire.ReasonInvalidURL},
		"opaque":           {func(r *wire.Request) { r.URL = "http:v1" }, wire.ReasonInvalidURL},
		"other scheme":     {func(r *wire.Request) { r.URL = "ftp://" + v.Addr() }, wire.ReasonInvalidURL},
		"file":             {func(r *wire.Request) { r.URL = "file:///etc/passwd" }, wire.ReasonInvalidURL},
		"user information": {func(r *wire.Request) { r.URL = "http://u:p@" + v.Addr() }, wire.ReasonInvalidURL},
		"port too large":   {func(r *wire.Request) { r.URL = "http://127.0.0.1:70000/" }, wire.ReasonInvalidURL},
		"port zero":        {func(r *wire.Request) { r.URL = "http://127.0.0.1:0/" }, wire.ReasonInvalidURL},
		"control in URL":   {func(r *wire.Request) { r.URL = v.URL() + "/a\r\nX: y" }, wire.ReasonInvalidURL},
		"blank in query":   {func(r *wire.Request) { r.URL = v.URL() + "/?a=b HTTP/1.1" }, wire.ReasonInvalidURL},
		"CR LF in value":   {func(r *wire.Request) { r.Header = http.Header{"X": {"a\r\nY: b"}} }, wire.ReasonInvalidHeader},
		"LF in value":      {func(r *wire.Request) { r.Header = http.Header{"X": {"a\nb"}} }, wire.ReasonInvalidHeader},
		"NUL in value":     {func(r *wire.Request) { r.Header = http.Header{"X": {"a\x00b"}} }, wire.ReasonInvalidHeader},
		"blank in name":    {func(r *wire.Request) { r.Header = http.Header{"X Y": {"a"}} }, wire.ReasonInvalidHeader},
		"empty name":       {func(r *wire.Request) { r.Header = http.Header{"": {"a"}} }, wire.ReasonInvalidHeader},
		"host":             {func(r *wire.Request) { r.Header = http.Header{"host": {"a"}} }, wire.ReasonInvalidHeader},
		"length":           {func(r *wire.Request) { r.Header = http.Header{"content-length": {"1"}} }, wire.ReasonInvalidHeader},
		"encoding":         {func(r *wire.Request) { r.Header = http.Header{"Transfer-Encoding": {"chunked"}} }, wire.ReasonInvalidHeader},
		"connection":       {func(r *wire.Request) { r.Header = http.Header{"Connection": {"upgrade"}} }, wire.ReasonInvalidHeader},
		"expect":           {func(r *wire.Request) { r.Header = http.Header{"Expect": {"100-continue"}} }, wire.ReasonInvalidHeader},
		"same name twice":  {func(r *wire.Request) { r.Header = http.Header{"x-a": {"1"}, "X-A": {"2"}} }, wire.ReasonInvalidHeader},
	}
	c := client(t, v)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := post(v)
			tc.change(&req)
			got := c.Send(t.Context(), req, nil)
			require.Equal(t, wire.NotSent, got.Phase)
			require.Equal(t, tc.reason, got.Reason)
		})
	}
	require.Zero(t, v.Connections())
}

// Without a permit not one byte arrives, on a new and on a kept connection.
func TestPermitRefused(t *testing.T) {
	for _, start := range []func(testing.TB, vendortest.Behaviour) *vendortest.Vendor{vendortest.New, vendortest.NewTLS} {
		v := start(t, vendortest.OK)
		c := client(t, v)
		no := func() error { return errors.New("lease is over") }
		for _, req := range []wire.Request{post(v), {Method: "DELETE", URL: v.URL()}, {Method: "POST", URL: v.URL()}} {
			got := c.Send(t.Context(), req, no)
			require.Equal(t, wire.NotSent, got.Phase)
			require.Equal(t, wire.ReasonNotPermitted, got.Reason)
		}
		require.Zero(t, v.Received())

		warm(t, c, v)
		received := v.Received()
		got := c.Send(t.Context(), post(v), no)
		require.Equal(t, wire.NotSent, got.Phase)
		require.Equal(t, wire.ReasonNotPermitted, got.Reason)
		require.True(t, got.Reused)
		v.Close()
		require.Equal(t, received, v.Received())
	}
}

// The Permit is asked once, after the connection stands, however large the body.
func TestPermitIsAskedOnce(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	req := post(v)
	req.Body = make([]byte, 1<<20)
	asked := 0
	got := client(t, v).Send(t.Context(), req, func() error {
		asked++
		require.Zero(t, v.Received())
		return nil
	})
	require.Equal(t, wire.Answered, got.Phase)
	require.Equal(t, 1, asked)
}

// A Send whose context ends while the Permit is asked sends nothing.
func TestCanceledWhileAskingPermit(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	ctx, cancel := context.WithCancel(t.Context())
	got := client(t, v).Send(ctx, post(v), func() error {
		cancel()
		return nil
	})
	require.Equal(t, wire.NotSent, got.Phase)
	require.Equal(t, wire.ReasonCanceled, got.Reason)
	v.Close()
	require.Zero(t, v.Received())
}

// A Permit that panics sends nothing and leaves no connection behind.
func TestPermitPanics(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	require.Panics(t, func() { client(t, v).Send(t.Context(), post(v), func() error { panic("boom") }) })
	v.Close()
	require.Zero(t, v.Received())
}

func TestNotSent(t *testing.T) {
	send := func(t *testing.T, c *wire.Client, url string) wire.Exchange {
		return c.Send(t.Context(), wire.Request{Method: "POST", URL: url, Body: []byte("{}")}, func() error {
			t.Error("permit asked without a connection")
			return nil
		})
	}
	check := func(t *testing.T, got wire.Exchange, reason string) {
		require.Equal(t, wire.NotSent, got.Phase)
		require.Equal(t, reason, got.Reason)
		require.Positive(t, got.Duration)
		require.False(t, got.Started.IsZero())
	}
	t.Run("refused", func(t *testing.T) {
		check(t, send(t, client(t, nil), vendortest.RefusedURL(t)), wire.ReasonRefused)
	})
	t.Run("no such name", func(t *testing.T) {
		c := client(t, nil, func(cfg *wire.Config) { cfg.Resolver = vendortest.Resolver(vendortest.Nothing) })
		check(t, send(t, c, "https://api.vendor.test/"), wire.ReasonDNS)
	})
	t.Run("unknown authority", func(t *testing.T) {
		v := vendortest.NewTLS(t, nil)
		c := client(t, v, func(cfg *wire.Config) { cfg.RootCAs = nil })
		check(t, send(t, c, v.URL()), wire.ReasonTLS)
		require.Zero(t, v.Received())
	})
	t.Run("certificate of another name", func(t *testing.T) {
		v := vendortest.Start(t, vendortest.Config{TLS: true, CertName: "other.test"})
		check(t, send(t, client(t, v), v.URL()), wire.ReasonTLS)
	})
	t.Run("expired certificate", func(t *testing.T) {
		v := vendortest.Start(t, vendortest.Config{TLS: true, Expired: true})
		check(t, send(t, client(t, v), v.URL()), wire.ReasonTLS)
	})
	t.Run("TLS to a plain port", func(t *testing.T) {
		v := vendortest.New(t, nil)
		check(t, send(t, client(t, v), "https://"+v.Addr()), wire.ReasonTLS)
		require.Zero(t, v.Arrivals())
	})
	t.Run("closed client", func(t *testing.T) {
		c := client(t, nil)
		c.Close()
		check(t, send(t, c, "http://127.0.0.1:1/"), wire.ReasonClosed)
	})
	t.Run("canceled before", func(t *testing.T) {
		v := vendortest.New(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check(t, client(t, v).Send(ctx, post(v), nil), wire.ReasonCanceled)
		require.Zero(t, v.Arrivals())
	})
	t.Run("deadline in the handshake", func(t *testing.T) {
		// Nobody accepts: the connection stands, and the handshake gets no answer.
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		req := wire.Request{Method: "POST", URL: "https://" + l.Addr().String(), Timeout: 100 * time.Millisecond}
		check(t, client(t, nil).Send(t.Context(), req, nil), wire.ReasonDeadline)
	})
	t.Run("handshake takes longer than a dial may", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		c := client(t, nil, func(cfg *wire.Config) { cfg.DialTimeout = 100 * time.Millisecond })
		check(t, send(t, c, "https://"+l.Addr().String()), wire.ReasonTLS)
	})
}

// A name is looked up, verified and sent as Host, with and without a final dot.
func TestNamedVendor(t *testing.T) {
	v := vendortest.NewTLS(t, nil)
	c := client(t, v, func(cfg *wire.Config) {
		cfg.Resolver = vendortest.Resolver(vendortest.Static(map[string]string{"vendor.test": "127.0.0.1"}))
	})
	for _, name := range []string{"vendor.test", "vendor.test."} {
		got := c.Send(t.Context(), wire.Request{Method: "POST", URL: "https://" + name + ":" + v.Port() + "/"}, nil)
		require.Equal(t, wire.Answered, got.Phase, got.Reason)
	}
	require.Equal(t, "vendor.test:"+v.Port(), v.Requests()[0].Host)
}

// Once attempted, the caller's end makes an unknown, never not_sent.
func TestCanceledAfterSending(t *testing.T) {
	v := vendortest.New(t, vendortest.Hang)
	ctx, cancel := context.WithCancel(t.Context())
	var got wire.Exchange
	var wg sync.WaitGroup
	wg.Go(func() { got = client(t, v).Send(ctx, post(v), nil) })
	v.AwaitArrivals(1)
	cancel()
	wg.Wait()
	require.Equal(t, wire.SentNoAnswer, got.Phase)
	require.Equal(t, wire.ReasonCanceled, got.Reason)
}

// The total timeout also ends a request whose body the vendor does not take.
func TestDeadlineWhileSending(t *testing.T) {
	for _, start := range []func(testing.TB, vendortest.Behaviour) *vendortest.Vendor{vendortest.New, vendortest.NewTLS} {
		v := start(t, func(c *vendortest.Call) { <-c.Done() })
		req := post(v)
		req.Body, req.Timeout = make([]byte, 32<<20), 200*time.Millisecond
		got := client(t, v).Send(t.Context(), req, nil)
		require.Equal(t, wire.SentNoAnswer, got.Phase)
		require.Equal(t, wire.ReasonDeadline, got.Reason)
		require.Equal(t, 1, v.Arrivals())
	}
}

// Proxies in the environment are not used.
func TestNoProxyFromEnvironment(t *testing.T) {
	proxy := vendortest.New(t, nil)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, proxy.URL())
	}
	v := vendortest.New(t, nil)
	c := client(t, v, func(cfg *wire.Config) {
		cfg.Resolver = vendortest.Resolver(vendortest.Static(map[string]string{"vendor.test": "127.0.0.1"}))
	})
	got := c.Send(t.Context(), wire.Request{Method: "GET", URL: "http://vendor.test:" + v.Port() + "/"}, nil)
	require.Equal(t, wire.Answered, got.Phase)
	require.Zero(t, proxy.Connections())
}

// A cookie a vendor sets is not sent back.
func TestNoCookies(t *testing.T) {
	v := vendortest.New(t, vendortest.Status(200, "Set-Cookie: a=b"))
	c := client(t, v)
	warm(t, c, v)
	warm(t, c, v)
	require.NotContains(t, v.Requests()[1].Header, "Cookie")
}

// Nothing that Send reports besides the answer itself holds what was asked.
func TestReasonsHoldNothingOfTheRequest(t *testing.T) {
	for _, url := range []string{"http://s3cret.invalid:1/s3cret", vendortest.RefusedURL(t) + "/s3cret", "http://s3cret:s3cret@127.0.0.1/"} {
		c := client(t, nil, func(cfg *wire.Config) { cfg.Resolver = vendortest.Resolver(vendortest.Nothing) })
		got := c.Send(t.Context(), wire.Request{Method: "POST", URL: url, Header: http.Header{"A": {"s3cret"}}}, nil)
		require.False(t, strings.Contains(got.Reason, "s3cret"))
	}
}

// Many at once over one client: each its own answer, one arrival each.
func TestConcurrentSends(t *testing.T) {
	v := vendortest.NewTLS(t, func(c *vendortest.Call) { c.JSON(200, string(c.ReadBody())) })
	c := client(t, v)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 5 {
				body := []byte(`[` + strings.Repeat("1,", i) + strings.Repeat("2,", j) + `0]`)
				got := c.Send(context.Background(), wire.Request{Method: "POST", URL: v.URL(), Body: body}, func() error { return nil })
				if got.Phase != wire.Answered || string(got.Body.Bytes) != string(body) {
					t.Errorf("got %s %s %q", got.Phase, got.Reason, got.Body.Bytes)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 320, v.Arrivals())
}
