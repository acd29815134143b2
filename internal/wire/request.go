package wire

import (
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const userAgent = "holdfast/1"

// prepared is a request that was found fit to leave, as the bytes that leave.
type prepared struct {
	method string
	url    *url.URL
	target string // as the request line has it
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
	if p.url, p.target, ok = parseURL(r.URL); !ok {
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
	var room [16]field
	fields, agent, ok := checkHeader(room[:0], r.Header)
	if !ok {
		return p, ReasonInvalidHeader
	}
	p.bytes = p.render(agent, fields, r.Body)
	return p, ""
}

// render makes head and body, the bytes that net/http's Request.Write makes of the
// same. Without a body, POST, PUT and PATCH get Content-Length: 0 and the others
// nothing.
func (p *prepared) render(agent string, fields []field, body []byte) []byte {
	out := make([]byte, 0, len(body)+1<<10)
	line := func(name, value string) {
		out = append(append(append(out, name...), ": "...), textproto.TrimString(value)...)
		out = append(out, "\r\n"...)
	}
	out = append(append(append(out, p.method...), ' '), p.target...)
	out = append(out, " HTTP/1.1\r\n"...)
	line("Host", withoutZone(p.url.Host))
	if agent != "" {
		line("User-Agent", agent)
	}
	if p.fresh {
		line("Connection", "close")
	}
	if len(body) > 0 || p.method == http.MethodPost || p.method == http.MethodPut || p.method == http.MethodPatch {
		line("Content-Length", strconv.Itoa(len(body)))
	}
	for _, f := range fields {
		for _, v := range f.values {
			line(f.name, v)
		}
	}
	out = append(out, "\r\n"...)
	return append(out, body...)
}

// withoutZone leaves out the zone of an IPv6 address, which means something on this
// machine only (RFC 6874 section 1).
func withoutZone(host string) string {
	if !strings.HasPrefix(host, "[") {
		return host
	}
	end := strings.LastIndexByte(host, ']')
	zone := strings.LastIndexByte(host[:max(end, 0)], '%')
	if zone < 0 {
		return host
	}
	return host[:zone] + host[end:]
}

// parseURL returns a URL and its target.
func parseURL(raw string) (*url.URL, string, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Hostname() == "" || u.User != nil {
		return nil, "", false
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, "", false
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, "", false
		}
	}
	host, err := httpguts.PunycodeHostPort(u.Host)
	if err != nil || !httpguts.ValidHostHeader(host) {
		return nil, "", false
	}
	u.Host = host
	// net/url lets blanks through in a query; in a request line they end the target.
	target := u.RequestURI()
	for i := range len(target) {
		if b := target[i]; b <= ' ' || b >= 0x7f {
			return nil, "", false
		}
	}
	return u, target, true
}

// field is a header with a canonical name.
type field struct {
	name   string
	values []string
}

// checkHeader appends the fields that leave, in the order of their names, but for
// the agent, which stands before them. It refuses what could change the framing or
// the connection, and names that differ only in case, whose order on the wire would
// be up to chance.
func checkHeader(fields []field, in http.Header) (out []field, agent string, ok bool) {
	agent = userAgent
	named, coded := false, false
	for name, values := range in {
		key := http.CanonicalHeaderKey(name)
		if !httpguts.ValidHeaderFieldName(name) || ownField(key) {
			return nil, "", false
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return nil, "", false
			}
		}
		switch key {
		case "User-Agent":
			if named {
				return nil, "", false
			}
			agent, named = first(values), true
		case "Accept-Encoding":
			if coded {
				return nil, "", false
			}
			coded = true
		default:
			fields = append(fields, field{key, values})
		}
	}
	fields = append(fields, field{"Accept-Encoding", []string{"gzip"}})
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(fields); i++ {
		if fields[i].name == fields[i-1].name {
			return nil, "", false
		}
	}
	return fields, agent, true
}

// first is what http.Header.Get returns of values.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
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
