package wire

import (
	"errors"
	"net/netip"
	"slices"
	"syscall"
)

var errEgressDenied = errors.New("address is outside the permitted egress")

// egress decides, address by address, where a connection may go. It sees what
// the kernel is about to connect to, so neither an odd spelling of a host nor
// a name that resolves differently the second time gets around it.
type egress struct {
	allow  []netip.Prefix
	denied []netip.Prefix
	global netip.Prefix
}

func newEgress(allow []netip.Prefix) *egress {
	e := &egress{
		// The only IPv6 space that is handed out as global unicast. Outside lie
		// ::/96, ::ffff:0:0/96 in its 6-byte forms, NAT64 64:ff9b::/96 and
		// 64:ff9b:1::/48, discard 100::/64, SRv6 5f00::/16, ULA fc00::/7,
		// link-local fe80::/10, site-local fec0::/10 and multicast ff00::/8.
		// Source: IANA IPv6 Global Unicast Address Space, RFC 4291 section 2.4.
		global: netip.MustParsePrefix("2000::/3"),
		denied: deniedPrefixes(),
	}
	for _, p := range allow {
		e.allow = append(e.allow, unmapPrefix(p))
	}
	return e
}

// deniedPrefixes lists what is not a vendor on the internet.
// Source: IANA IPv4 and IPv6 Special-Purpose Address Registries (RFC 6890).
func deniedPrefixes() []netip.Prefix {
	list := []string{
		"0.0.0.0/8",         // this network, RFC 791
		"10.0.0.0/8",        // private, RFC 1918
		"100.64.0.0/10",     // carrier-grade NAT, RFC 6598; holds Alibaba's metadata 100.100.100.200
		"127.0.0.0/8",       // loopback
		"168.63.129.16/32",  // Azure's host services, a public address
		"169.254.0.0/16",    // link-local, RFC 3927; holds 169.254.169.254 and 169.254.170.2
		"172.16.0.0/12",     // private, RFC 1918
		"192.0.0.0/24",      // IETF protocol assignments; holds Oracle's metadata 192.0.0.192
		"192.0.2.0/24",      // documentation, RFC 5737
		"192.31.196.0/24",   // AS112, RFC 7535
		"192.52.193.0/24",   // AMT, RFC 7450
		"192.88.99.0/24",    // 6to4 relay anycast, RFC 7526
		"192.168.0.0/16",    // private, RFC 1918
		"192.175.48.0/24",   // AS112, RFC 7534
		"198.18.0.0/15",     // benchmarking, RFC 2544
		"198.51.100.0/24",   // documentation, RFC 5737
		"203.0.113.0/24",    // documentation, RFC 5737
		"224.0.0.0/4",       // multicast
		"240.0.0.0/4",       // reserved, and broadcast
		"2001::/23",         // IETF protocol assignments: Teredo, ORCHID, benchmarking
		"2001:db8::/32",     // documentation, RFC 3849
		"2002::/16",         // 6to4, holds any IPv4 address, RFC 3056
		"2620:4f:8000::/48", // AS112, RFC 7534
		"3fff::/20",         // documentation, RFC 9637
	}
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// unmapPrefix turns ::ffff:10.0.0.0/104 into 10.0.0.0/8, the form addresses are
// compared in.
func unmapPrefix(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// check is the decision for one address. An address the operator names is
// permitted in either scheme, any other only with TLS and only if it is public.
func (e *egress) check(addr netip.Addr, plain bool) error {
	// ::ffff:a.b.c.d connects to a.b.c.d; a zone only names an interface.
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return errEgressDenied
	}
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	if slices.ContainsFunc(e.allow, in) {
		return nil
	}
	if plain || slices.ContainsFunc(e.denied, in) {
		return errEgressDenied
	}
	if addr.Is6() && !e.global.Contains(addr) {
		return errEgressDenied
	}
	return nil
}

// control has the form of net.Dialer.Control, which runs for every resolved
// address after the look-up and before the connect.
func (e *egress) control(plain bool) func(string, string, syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return errEgressDenied
		}
		return e.check(ap.Addr(), plain)
	}
}
