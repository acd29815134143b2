package vendortest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/vendortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plainClient is net/http as most programs use it.
func plainClient(t *testing.T, v *vendortest.Vendor) *http.Client {
	t.Helper()
	tr := &http.Transport{ForceAttemptHTTP2: true}
	if strings.HasPrefix(v.URL(), "https") {
		tr.TLSClientConfig = &tls.Config{RootCAs: v.CertPool(), MinVersion: tls.VersionTLS12}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// send sends one POST with an idempotency key and returns the answer's body.
func send(t *testing.T, c *http.Client, url, body string) (string, error) {
	t.Helper()
	// A strings.Reader makes net/http set GetBody.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "k")
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	return string(raw), err
}

func TestArrivalsAreRecorded(t *testing.T) {
	v := vendortest.New(t, nil)
	got, err := send(t, plainClient(t, v), v.URL()+"/v1/x?y=z", `{"a":1}`)
	require.NoError(t, err)
	require.Equal(t, `{"arrival":1}`, got)
	v.AwaitArrivals(1)
	a := v.Requests()[0]
	require.Equal(t, "POST", a.Method)
	require.Equal(t, "/v1/x?y=z", a.Target)
	require.Equal(t, v.Addr(), a.Host)
	require.Equal(t, "k", a.Header.Get("Idempotency-Key"))
	require.Equal(t, `{"a":1}`, string(a.Body))
	require.True(t, a.BodyRead)
	require.Equal(t, 1, a.Conn)
	require.Positive(t, v.Received())
}

// Half a head is no arrival, though its bytes are counted.
func TestHalfAHeadIsNoArrival(t *testing.T) {
	v := vendortest.New(t, nil)
	c, err := net.Dial("tcp", v.Addr())
	require.NoError(t, err)
	_, err = c.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\n"))
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	_, err = io.ReadAll(c)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Zero(t, v.Arrivals())
	require.Equal(t, 1, v.Connections())
	require.EqualValues(t, 26, v.Received())
}

// Negative control for the one-arrival tests of package wire: the same vendor
// counts the second send of a client that makes one. GetBody is set, the key
// makes the request "replayable", the kept connection ends: two arrivals.
func TestPlainClientSendsTwice(t *testing.T) {
	for _, end := range []vendortest.Behaviour{vendortest.CloseAfterBody, vendortest.ResetAfterBody} {
		v := vendortest.New(t, nil)
		c := plainClient(t, v)
		_, err := send(t, c, v.URL(), "{}")
		require.NoError(t, err)
		v.Queue(end)
		got, err := send(t, c, v.URL(), "{}")
		require.NoError(t, err)
		require.Equal(t, `{"arrival":3}`, got)
		require.Equal(t, 3, v.Arrivals(), "one to warm the connection, and the write twice")
	}
}

// The same for HTTP/2: GOAWAY and REFUSED_STREAM make a client send again.
func TestPlainClientSendsTwiceOverHTTP2(t *testing.T) {
	for _, fault := range []vendortest.HTTP2Fault{vendortest.GoAway, vendortest.RefusedStream} {
		v := vendortest.Start(t, vendortest.Config{HTTP2: fault})
		_, err := send(t, plainClient(t, v), v.URL(), `{"a":1}`)
		require.NoError(t, err)
		require.Equal(t, 2, v.Arrivals())
		for _, a := range v.Requests() {
			require.Equal(t, "HTTP/2.0", a.Proto)
			require.Equal(t, `{"a":1}`, string(a.Body))
			require.Equal(t, "k", a.Header.Get("Idempotency-Key"))
		}
	}
}

// And for redirects.
func TestPlainClientFollowsRedirects(t *testing.T) {
	v := vendortest.New(t, nil)
	v.Queue(vendortest.Status(307, "Location: /elsewhere"))
	_, err := send(t, plainClient(t, v), v.URL(), "{}")
	require.NoError(t, err)
	require.Equal(t, 2, v.Arrivals())
}

func TestQueueThenUse(t *testing.T) {
	v := vendortest.New(t, vendortest.Status(500))
	v.Queue(vendortest.Status(201), vendortest.Status(202))
	c := plainClient(t, v)
	for i, status := range []string{"201", "202", "500"} {
		got, err := send(t, c, v.URL(), "{}")
		require.NoError(t, err)
		require.Contains(t, got, `"status":`+status, i)
	}
	v.Use(vendortest.OK)
	got, err := send(t, c, v.URL(), "{}")
	require.NoError(t, err)
	require.Equal(t, `{"arrival":4}`, got)
}

func TestFaultNamesAreUnique(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range vendortest.Faults() {
		require.Regexp(t, `^[a-z0-9_]+$`, f.Name)
		require.False(t, seen[f.Name], f.Name)
		require.NotNil(t, f.Behaviour, f.Name)
		seen[f.Name] = true
	}
}

func TestReset(t *testing.T) {
	v := vendortest.New(t, vendortest.ResetAfterBody)
	_, err := send(t, plainClient(t, v), v.URL(), "{}")
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestRefusedURL(t *testing.T) {
	url := vendortest.RefusedURL(t)
	_, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestCAFile(t *testing.T) {
	v := vendortest.NewTLS(t, nil)
	require.FileExists(t, v.CAFile())
	_, err := send(t, plainClient(t, v), v.URL(), "{}")
	require.NoError(t, err)
}

func TestResolver(t *testing.T) {
	lookup := func(zone vendortest.Zone, name string) ([]netip.Addr, error) {
		return vendortest.Resolver(zone).LookupNetIP(t.Context(), "ip", name)
	}
	t.Run("static", func(t *testing.T) {
		got, err := lookup(vendortest.Static(map[string]string{"api.test": "127.0.0.2"}), "API.test.")
		require.NoError(t, err)
		require.Equal(t, "127.0.0.2", got[0].Unmap().String())
	})
	t.Run("both families", func(t *testing.T) {
		got, err := lookup(func(string) []netip.Addr {
			return []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")}
		}, "api.test.")
		require.NoError(t, err)
		require.Len(t, got, 2)
	})
	t.Run("no such name", func(t *testing.T) {
		_, err := lookup(vendortest.Nothing, "api.test.")
		var dns *net.DNSError
		require.True(t, errors.As(err, &dns))
		require.True(t, dns.IsNotFound)
	})
	t.Run("rebinding", func(t *testing.T) {
		var asked atomic.Int32
		r := vendortest.Resolver(func(string) []netip.Addr {
			if asked.Add(1) == 1 {
				return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
		})
		for _, want := range []string{"127.0.0.1", "127.0.0.2"} {
			got, err := r.LookupNetIP(t.Context(), "ip4", "api.test.")
			require.NoError(t, err)
			require.Equal(t, want, got[0].Unmap().String())
		}
	})
}

// Closing ends what hangs, so no test waits for a vendor.
func TestCloseEndsHangingCalls(t *testing.T) {
	v := vendortest.New(t, vendortest.Hang)
	done := make(chan error, 1)
	c := plainClient(t, v)
	go func() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, v.URL(), bytes.NewReader([]byte("{}")))
		if err == nil {
			var resp *http.Response
			if resp, err = c.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
		done <- err
	}()
	v.AwaitArrivals(1)
	v.Close()
	v.Close()
	require.Error(t, <-done)
}
