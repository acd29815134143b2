package connectors

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
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

// cleanURL is a base URL in its one spelling: lower-case host, no user, query,
// fragment, escape, dot segment or trailing slash.
var cleanURL = regexp.MustCompile(`^(https?)://(\[[0-9a-f:.]+\]|[a-z0-9]([a-z0-9.-]*[a-z0-9])?)(:[1-9][0-9]{0,4})?((/[A-Za-z0-9._~-]+)*)$`)

// SplitBaseURL takes a base URL apart and refuses any that is not in its one
// clean spelling. host is without brackets and port. The error wraps ErrBaseURL.
func SplitBaseURL(raw string) (u *url.URL, host string, err error) {
	parts := cleanURL.FindStringSubmatch(raw)
	if parts == nil || strings.Contains(parts[2], "..") {
		return nil, "", fmt.Errorf("%w: it must be http(s)://host[:port][/path], in lower case, without a trailing slash", ErrBaseURL)
	}
	for segment := range strings.SplitSeq(parts[5], "/") {
		if segment == "." || segment == ".." {
			return nil, "", fmt.Errorf("%w: its path has a dot segment", ErrBaseURL)
		}
	}
	u, err = url.Parse(raw)
	if err != nil || u.Host == "" || u.Hostname() == "" {
		return nil, "", fmt.Errorf("%w: it cannot be read", ErrBaseURL)
	}
	return u, u.Hostname(), nil
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
