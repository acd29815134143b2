package wire_test

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
	"holdfast.dev/gateway/internal/wire"
)

// On a kept connection net/http sends a request with an idempotency key again
// when the connection ends before the answer (golang/go issue 19943). The vendor
// here reads the whole request, which is the work, and then closes or resets.
// That it catches a second send is shown by the negative control
// TestPlainClientSendsTwice in package vendortest, where the same vendor counts 2
// for a plain http.Client, whose requests have GetBody set.
func TestWarmConnection(t *testing.T) {
	requests := map[string]wire.Request{
		"post":              {Method: "POST", Body: []byte(`{"a":1}`)},
		"post without body": {Method: "POST"},
		"put":               {Method: "PUT", Body: []byte(`{"a":1}`)},
		"delete":            {Method: "DELETE"},
		"delete with body":  {Method: "DELETE", Body: []byte(`{}`)},
		"get":               {Method: "GET"},
		"odd method":        {Method: "MERGE"},
	}
	headers := map[string]http.Header{
		"no key":            nil,
		"Idempotency-Key":   {"Idempotency-Key": {"k"}},
		"X-Idempotency-Key": {"X-Idempotency-Key": {"k"}},
	}
	ends := map[string]vendortest.Behaviour{
		"close": vendortest.CloseAfterBody, "reset": vendortest.ResetAfterBody,
		"408": vendortest.Raw("HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"),
	}
	vendors := map[string]func(testing.TB) *vendortest.Vendor{
		"http":  func(t testing.TB) *vendortest.Vendor { return vendortest.New(t, vendortest.OK) },
		"https": func(t testing.TB) *vendortest.Vendor { return vendortest.NewTLS(t, vendortest.OK) },
	}
	for vendorName, start := range vendors {
		t.Run(vendorName, func(t *testing.T) {
			t.Parallel()
			v := start(t)
			c := client(t, v)
			for endName, end := range ends {
				for reqName, req := range requests {
					for headerName, header := range headers {
						t.Run(endName+"/"+reqName+"/"+headerName, func(t *testing.T) {
							req.URL, req.Header = v.URL()+"/x", header
							warm(t, c, v)
							before := v.Arrivals()
							v.Queue(end)
							got := c.Send(t.Context(), req, nil)
							require.Equal(t, before+1, v.Arrivals())
							if endName == "408" {
								require.Equal(t, wire.Cut, got.Body.State)
							} else {
								require.Equal(t, wire.SentNoAnswer, got.Phase)
							}
							require.True(t, got.Reused)
						})
					}
				}
			}
		})
	}
}

// warm leaves a connection to v in the pool.
func warm(t *testing.T, c *wire.Client, v *vendortest.Vendor) {
	t.Helper()
	got := c.Send(t.Context(), post(v), nil)
	require.Equal(t, wire.Answered, got.Phase)
}

// A vendor that speaks HTTP/2 is spoken to in HTTP/1.1, so GOAWAY and
// REFUSED_STREAM cannot make anything be sent again.
func TestHTTP2Vendor(t *testing.T) {
	for _, fault := range []vendortest.HTTP2Fault{vendortest.GoAway, vendortest.RefusedStream} {
		t.Run(string(fault), func(t *testing.T) {
			v := vendortest.Start(t, vendortest.Config{HTTP2: fault})
			c := client(t, v)
			warm(t, c, v)
			v.Queue(vendortest.CloseAfterBody)
			req := post(v)
			req.Header = http.Header{"Idempotency-Key": {"k"}}
			got := c.Send(t.Context(), req, nil)
			require.Equal(t, wire.SentNoAnswer, got.Phase)
			require.True(t, got.Reused)
			require.Equal(t, 2, v.Arrivals())
			for _, a := range v.Requests() {
				require.Equal(t, "HTTP/1.1", a.Proto)
			}
		})
	}
}

// A tracing hook in the context neither sees the request nor changes it.
func TestTracingHooksSeeNothing(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	c := client(t, v)
	seen := 0
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
		GotConn:          func(httptrace.GotConnInfo) { seen++ },
		WroteHeaderField: func(string, []string) { seen++ },
	})
	v.Queue(vendortest.OK, vendortest.CloseAfterBody)
	req := post(v)
	req.Header = http.Header{"Idempotency-Key": {"k"}, "Authorization": {"Bearer s"}}
	require.Equal(t, wire.Answered, c.Send(ctx, req, nil).Phase)
	require.Equal(t, wire.SentNoAnswer, c.Send(ctx, req, nil).Phase)
	require.Equal(t, 2, v.Arrivals())
	require.Zero(t, seen)
}

// A fresh connection is never a kept one, says that it will not be kept, and is
// not, even where the vendor would keep it.
func TestFreshConnection(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	c := client(t, v)
	req := post(v)
	req.FreshConnection = true
	require.Equal(t, wire.Answered, c.Send(t.Context(), req, nil).Phase)
	require.Equal(t, "close", v.Requests()[0].Header.Get("Connection"))
	require.False(t, c.Send(t.Context(), post(v), nil).Reused)
	got := c.Send(t.Context(), req, nil)
	require.Equal(t, wire.Answered, got.Phase)
	require.False(t, got.Reused)
	require.Equal(t, 3, v.Connections())
	require.True(t, c.Send(t.Context(), post(v), nil).Reused)
}

// An answer that comes before the request has been written ends the connection:
// the rest of the request would be taken for the beginning of the next one.
func TestUnfinishedRequestIsNotKept(t *testing.T) {
	v := vendortest.New(t, vendortest.OK)
	c := client(t, v)
	v.Queue(func(c *vendortest.Call) {
		c.Raw("HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")
		<-c.Done()
	})
	req := post(v)
	req.Body = make([]byte, 32<<20)
	got := c.Send(t.Context(), req, nil)
	require.Equal(t, 400, got.Status)
	require.Equal(t, wire.Complete, got.Body.State)
	require.False(t, c.Send(t.Context(), post(v), nil).Reused)
}
