package connectors

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// BaseURL says which servers a connector may be pointed at.
type BaseURL struct {
	// Default serves a connection that names none; empty: it must name one.
	Default string
	// Allow lists what a tenant may choose from: an exact URL, or one whose
	// host begins with "*." and stands for any name below it.
	Allow []string
}

// SplitBaseURL takes a base URL apart and refuses any that is not in its one
// clean spelling. host is without brackets and port. The error wraps ErrBaseURL.
func SplitBaseURL(raw string) (u *url.URL, host string, err error) {
	if err := CleanBaseURL(raw); err != nil {
		return nil, "", err
	}
	u, err = url.Parse(raw)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return nil, "", fmt.Errorf("%w: it cannot be read", ErrBaseURL)
	}
	return u, u.Hostname(), nil
}

// CleanBaseURL refuses a base URL that is not in its one spelling: http or https, a
// lower-case host, no user, query, fragment, escape, empty or dot segment or trailing
// slash. The error wraps ErrBaseURL.
func CleanBaseURL(raw string) error {
	rest, ok := strings.CutPrefix(raw, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(raw, "http://")
	}
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	host := authority
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		host, ok = authority[:i], ok && cleanPort(authority[i+1:])
	}
	if !ok || !cleanHost(host) || !only(path, "/._~-") || strings.Contains(path, "//") || strings.HasSuffix(path, "/") {
		return fmt.Errorf("%w: it must be http(s)://host[:port][/path], in lower case, without a trailing slash", ErrBaseURL)
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return fmt.Errorf("%w: its path has a dot segment", ErrBaseURL)
		}
	}
	return nil
}

func cleanPort(port string) bool {
	return 1 <= len(port) && len(port) <= 5 && strings.Trim(port, "0123456789") == "" && port[0] != '0'
}

// cleanHost accepts a name or an address, and one of IPv6 in brackets without a zone.
func cleanHost(host string) bool {
	if inside, ok := strings.CutPrefix(host, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		addr, err := netip.ParseAddr(inside)
		return ok && err == nil && addr.Is6() && addr.Zone() == "" && strings.ToLower(inside) == inside
	}
	return host != "" && strings.Trim(host, ".-") == host &&
		strings.ToLower(host) == host && only(host, ".-") && !strings.Contains(host, "..")
}

// only says whether a text has no characters but ASCII letters, digits and those of
// others.
func only(text, others string) bool {
	for i := range len(text) {
		c := text[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(others, c) >= 0) {
			return false
		}
	}
	return true
}

// CheckBaseURL says whether a connection may use base. A URL on the allow list
// may. So may, for tests and for vendors inside one's own network, any URL
// whose host is an IP address or localhost that the operator opened for egress
// (GATEWAY_EGRESS_ALLOW): egressAllowed is asked about that host. Plain http
// needs egressAllowed always, on the allow list or not, and hence such a host.
// An empty base stands for the default. The error wraps ErrBaseURL.
func (s Spec) CheckBaseURL(base string, egressAllowed func(host string) bool) error {
	if base == "" {
		base = s.BaseURL.Default
	}
	if base == "" {
		return fmt.Errorf("%w: this connector has no default, name one", ErrBaseURL)
	}
	u, host, err := SplitBaseURL(base)
	if err != nil {
		return err
	}
	if LocalHost(host) {
		if egressAllowed != nil && egressAllowed(host) {
			return nil
		}
		return fmt.Errorf("%w: its host is not open for egress", ErrBaseURL)
	}
	if u.Scheme != "https" {
		return fmt.Errorf("%w: it must be https", ErrBaseURL)
	}
	for _, allowed := range s.BaseURL.Allow {
		if matchBase(allowed, base, host) {
			return nil
		}
	}
	return fmt.Errorf("%w: it must be one of %s", ErrBaseURL, strings.Join(s.BaseURL.Allow, ", "))
}

// LocalHost says whether a host is an IP address or localhost: one that the
// allow list of a manifest does not speak for, and the operator's egress rule
// does. A host of digits and dots that is no address is one too: resolvers read
// "127.1" and "2130706433" as addresses.
func LocalHost(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	return last != "" && (strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x"))
}

// matchBase compares a clean base URL with one entry of an allow list.
func matchBase(allowed, base, host string) bool {
	allowed = strings.TrimSuffix(allowed, "/")
	scheme, rest, _ := strings.Cut(allowed, "://")
	below, wild := strings.CutPrefix(rest, "*")
	if !wild {
		return base == allowed
	}
	end := strings.IndexAny(below, ":/")
	if end < 0 {
		end = len(below)
	}
	suffix, tail := below[:end], below[end:] // ".example.com", ":8443/api"
	// A clean host begins with no dot, so something stands before the suffix.
	return strings.HasSuffix(host, suffix) && base == scheme+"://"+host+tail
}
