package wire

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const userAgent = "holdfast/1"

// prepared is a request that was found fit to leave, as the bytes that leave.
type prepared struct {
	method string
	url    *url.URL
	tls    bool
	addr   string // host and port to dial
	fresh  bool
	bytes  []byte
}

// key says which kept connections may carry the request.
func (p prepared) key() string { return p.url.Scheme + "://" + p.addr }

// prepare checks everything that can be checked before dialling and renders the
// request, so that nothing is left to fail once a byte is out. The reason is
// empty if the request may go.
func prepare(r Request) (prepared, string) {
	p := prepared{method: r.Method, fresh: r.FreshConnection}
	// A method is a token like a field name (RFC 9110 section 9.1); CONNECT
	// would turn the connection into something else.
	if !httpguts.ValidHeaderFieldName(r.Method) || strings.EqualFold(r.Method, http.MethodConnect) {
		return p, ReasonInvalidMethod
	}
	var ok bool
	if p.url, ok = parseURL(r.URL); !ok {
		return p, ReasonInvalidURL
	}
	p.tls = p.url.Scheme == "https"
	port := p.url.Port()
	switch {
	case port != "":
	case p.tls:
		port = "443"
	default:
		port = "80"
	}
	p.addr = net.JoinHostPort(strings.ToLower(p.url.Hostname()), port)
	header, ok := checkHeader(r.Header)
	if !ok {
		return p, ReasonInvalidHeader
	}
	var out bytes.Buffer
	if render(&out, p, header, r.Body) != nil {
		return p, ReasonInvalid
	}
	p.bytes = out.Bytes()
	return p, ""
}

// render writes head and body. Without a body, POST, PUT and PATCH get
// Content-Length: 0 and the others nothing.
func render(out *bytes.Buffer, p prepared, header http.Header, body []byte) error {
	r := &http.Request{Method: p.method, URL: p.url, Host: p.url.Host, Header: header, Close: p.fresh}
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
	}
	out.Grow(len(body) + 1<<10)
	return r.Write(out)
}

func parseURL(raw string) (*url.URL, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Hostname() == "" || u.User != nil {
		return nil, false
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, false
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, false
		}
	}
	host, err := httpguts.PunycodeHostPort(u.Host)
	if err != nil || !httpguts.ValidHostHeader(host) {
		return nil, false
	}
	u.Host = host
	// net/url lets blanks through in a query; in a request line they end the target.
	for _, b := range []byte(u.RequestURI()) {
		if b <= ' ' || b >= 0x7f {
			return nil, false
		}
	}
	return u, true
}

// checkHeader gathers the fields that leave. It refuses what could change the
// framing or the connection, and names that differ only in case, whose order
// on the wire would be up to chance.
func checkHeader(in http.Header) (http.Header, bool) {
	out := make(http.Header, len(in)+2)
	for name, values := range in {
		key := http.CanonicalHeaderKey(name)
		if _, twice := out[key]; twice || !httpguts.ValidHeaderFieldName(name) || ownField(key) {
			return nil, false
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return nil, false
			}
		}
		out[key] = values
	}
	if _, set := out["User-Agent"]; !set {
		out.Set("User-Agent", userAgent)
	}
	out.Set("Accept-Encoding", "gzip")
	return out, true
}

// ownField names the fields that belong to the transport: framing, routing and
// hop-by-hop (RFC 9110 section 7.6.1). Expect would add a wait for 100.
func ownField(key string) bool {
	switch key {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Te", "Expect",
		"Connection", "Keep-Alive", "Proxy-Connection", "Upgrade",
		"Proxy-Authorization", "Proxy-Authenticate":
		return true
	}
	return false
}
