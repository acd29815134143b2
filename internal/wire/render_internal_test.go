package wire

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asNetHTTP is what net/http writes for a prepared request.
func asNetHTTP(t *testing.T, r Request, p prepared) string {
	t.Helper()
	header := http.Header{}
	for name, values := range r.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	if _, set := header["User-Agent"]; !set {
		header.Set("User-Agent", userAgent)
	}
	header.Set("Accept-Encoding", "gzip")
	req := &http.Request{Method: p.method, URL: p.url, Host: p.url.Host, Header: header, Close: p.fresh}
	if len(r.Body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body))
	}
	var out bytes.Buffer
	require.NoError(t, req.Write(&out), "whatever prepare lets by can be written")
	return out.String()
}

// What leaves is, byte for byte, what net/http would write of the same request.
func FuzzRender(f *testing.F) {
	f.Add("POST", "https://vendor.example/v1/things?a=b", "Content-Type", "application/json", "X-Note", " spaced ", `{"a":1}`, false)
	f.Add("PUT", "http://[fe80::1%25en0]:8080/a%2Fb", "user-agent", "mine/2", "Accept", "*/*", "", true)
	f.Add("GET", "https://bücher.example", "User-Agent", "", "accept-encoding", "br", "", false)
	f.Add("DELETE", "https://vendor.example?", "B", "2", "A", "1\t", "x", false)
	f.Add("PATCH", "https://[::1]", "X-A", "1", "x-a", "2", "", false)
	f.Add("POST", "https://user@vendor.example/", "Host", "other", "Expect", "100-continue", "", false)
	f.Add("GET", "http://[fe80::1%25en0]:81ß]", "X-A", "1", "X-B", "2", "", false) // no address, and left as it is
	f.Add("POST", "https://vendor.example/\x7f", "X-A", "a\r\nX-B: b", "", "", "", false)
	f.Add("po st", "https://vendor.example/a b", "Content-Length", "3", "Connection", "close", "abc", false)
	f.Fuzz(func(t *testing.T, method, url, name1, value1, name2, value2, body string, fresh bool) {
		r := Request{Method: method, URL: url, Body: []byte(body), FreshConnection: fresh, Header: http.Header{name1: {value1}}}
		r.Header[name2] = append(r.Header[name2], value2, value1)
		p, reason := prepare(r)
		if reason != "" {
			require.Empty(t, p.bytes)
			return
		}
		require.Equal(t, asNetHTTP(t, r, p), string(p.bytes))
	})
}

// More fields than have their room made beforehand keep their order.
func TestRenderManyFields(t *testing.T) {
	r := Request{Method: http.MethodPost, URL: "https://vendor.example/", Header: http.Header{}, Body: []byte("{}")}
	for _, c := range "zyxwvutsrqponmlkjihgfedcba" {
		r.Header["X-"+strings.Repeat(string(c), 2)] = []string{string(c), ""}
	}
	r.Header["User-Agent"] = nil
	p, reason := prepare(r)
	require.Empty(t, reason)
	require.Equal(t, asNetHTTP(t, r, p), string(p.bytes))
	require.NotContains(t, string(p.bytes), "User-Agent")
}

func BenchmarkPrepare(b *testing.B) {
	r := Request{
		Method: http.MethodPost, URL: "http://127.0.0.1:8080/things", Body: bytes.Repeat([]byte("x"), 300),
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}, "Authorization": {"Bearer t"}},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, reason := prepare(r); reason != "" {
			b.Fatal(reason)
		}
	}
}
