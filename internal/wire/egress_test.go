package wire_test

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
	"holdfast.dev/gateway/internal/wire"
)

// Addresses that are not a vendor on the internet are not connected to, in
// whatever spelling they come. Nothing here leaves the machine: each is refused
// before the connect, which the reason shows.
func TestEgressDenied(t *testing.T) {
	hosts := []string{
		"127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
		"169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "100.127.255.255", "168.63.129.16",
		"192.0.0.192", "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.175.48.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
		"224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"[::]", "[::1]", "[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:10.0.0.1]", "[0:0:0:0:0:ffff:a9fe:a9fe]",
		"[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::8.8.8.8]", "[64:ff9b:1::1]", "[100::1]",
		"[2001::1]", "[2001:0:4136:e378:8000:63bf:3fff:fdd2]", "[2001:2::1]", "[2001:10::1]", "[2001:20::1]", "[2001:db8::1]",
		"[2002:7f00:1::1]", "[2620:4f:8000::1]", "[3fff::1]", "[5f00::1]", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25lo]", "[fec0::1]", "[ff02::1]",
	}
	c := client(t, nil, func(cfg *wire.Config) { cfg.EgressAllow = nil })
	for _, host := range hosts {
		for _, scheme := range []string{"http", "https"} {
			t.Run(scheme+"/"+host, func(t *testing.T) {
				got := c.Send(t.Context(), wire.Request{Method: "POST", URL: scheme + "://" + host + ":1/"}, nil)
				require.Equal(t, wire.NotSent, got.Phase)
				require.Equal(t, wire.ReasonEgressDenied, got.Reason)
			})
		}
	}
}

// Spellings of loopback that some resolvers understand: this one understands
// them all, and the address it gives is still refused.
func TestEgressOddSpellings(t *testing.T) {
	v := vendortest.New(t, nil)
	c := client(t, nil, func(cfg *wire.Config) {
		cfg.EgressAllow = nil
		cfg.Resolver = vendortest.Resolver(func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	})
	for _, host := range []string{
		"localhost", "localhost.", "LOCALHOST", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1",
		"127.0.0.1.", "127.0.0.01", "vendor.test", "vendor.test.", "①②⑦.0.0.1", "[::ffff:127.0.0.1]", "[::FFFF:7F00:0001]",
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(scheme+"/"+host, func(t *testing.T) {
				got := c.Send(t.Context(), wire.Request{Method: "POST", URL: scheme + "://" + host + ":" + v.Port() + "/"}, nil)
				require.Equal(t, wire.NotSent, got.Phase)
				require.Contains(t, []string{wire.ReasonEgressDenied, wire.ReasonDNS}, got.Reason)
			})
		}
	}
	require.Zero(t, v.Connections())
}

// A public address is dialled over TLS only. The context has ended, so that the
// test cannot reach it; what matters is that https is not refused by the guard.
func TestPlainNeedsAnAllowedNetwork(t *testing.T) {
	zone := vendortest.Static(map[string]string{"vendor.test": "8.8.8.8"})
	c := client(t, nil, func(cfg *wire.Config) { cfg.Resolver = vendortest.Resolver(zone) })
	got := c.Send(t.Context(), wire.Request{Method: "POST", URL: "http://vendor.test/"}, nil)
	require.Equal(t, wire.NotSent, got.Phase)
	require.Equal(t, wire.ReasonEgressDenied, got.Reason)
}

// The allow list is by address: what it holds is permitted, its neighbours are
// not, and an IPv4-mapped prefix means the IPv4 one.
func TestEgressAllow(t *testing.T) {
	for name, tc := range map[string]struct {
		allow string
		host  string
		ok    bool
	}{
		"network":               {"127.0.0.0/8", "127.0.0.1", true},
		"one address":           {"127.0.0.1/32", "127.0.0.1", true},
		"neighbour":             {"127.0.0.2/32", "127.0.0.1", false},
		"mapped prefix":         {"::ffff:127.0.0.0/104", "127.0.0.1", true},
		"mapped host":           {"127.0.0.0/8", "[::ffff:127.0.0.1]", true},
		"v6 prefix only":        {"::/0", "127.0.0.1", false},
		"everything in v4":      {"0.0.0.0/0", "127.0.0.1", true},
		"embedded is not meant": {"64:ff9b::/96", "127.0.0.1", false},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendortest.New(t, nil)
			c := client(t, nil, func(cfg *wire.Config) { cfg.EgressAllow = []netip.Prefix{netip.MustParsePrefix(tc.allow)} })
			got := c.Send(t.Context(), wire.Request{Method: "POST", URL: "http://" + tc.host + ":" + v.Port() + "/"}, nil)
			if tc.ok {
				require.Equal(t, wire.Answered, got.Phase, got.Reason)
				return
			}
			require.Equal(t, wire.NotSent, got.Phase)
			require.Equal(t, wire.ReasonEgressDenied, got.Reason)
			require.Zero(t, v.Connections())
		})
	}
}

// A name that is harmless when first asked and points inside afterwards: the
// check is on the address of each connect, so there is nothing to win.
func TestRebindingName(t *testing.T) {
	good, bad := vendortest.New(t, nil), netip.MustParseAddr("127.9.9.9")
	var asked atomic.Int32
	zone := func(string) []netip.Addr {
		if asked.Add(1) <= 2 { // A and AAAA of the first look-up
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		}
		return []netip.Addr{bad}
	}
	c := client(t, nil, func(cfg *wire.Config) {
		cfg.EgressAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		cfg.Resolver = vendortest.Resolver(zone)
	})
	req := wire.Request{Method: "POST", URL: "http://vendor.test.:" + good.Port() + "/", Body: []byte("{}"), FreshConnection: true}
	require.Equal(t, wire.Answered, c.Send(t.Context(), req, nil).Phase)
	got := c.Send(t.Context(), req, nil)
	require.Equal(t, wire.NotSent, got.Phase)
	require.Equal(t, wire.ReasonEgressDenied, got.Reason)
	require.Equal(t, 1, good.Arrivals())
}

// A name with a permitted and a forbidden address: only the permitted one is
// connected to.
func TestMixedAddresses(t *testing.T) {
	v := vendortest.New(t, nil)
	zone := func(string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}
	}
	c := client(t, v, func(cfg *wire.Config) { cfg.Resolver = vendortest.Resolver(zone) })
	got := c.Send(t.Context(), wire.Request{Method: "GET", URL: "http://vendor.test:" + v.Port() + "/"}, nil)
	require.Equal(t, wire.Answered, got.Phase, got.Reason)
}
