package wire

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// The decision for one address, in forms that net.Dialer may or may not reduce
// before it asks.
func TestEgressCheck(t *testing.T) {
	for _, tc := range []struct {
		allow, addr string
		plain, ok   bool
	}{
		{"", "8.8.8.8", false, true},
		{"", "8.8.8.8", true, false},
		{"", "2606:4700::1111", false, true},
		{"", "2606:4700::1111", true, false},
		{"", "::ffff:8.8.8.8", false, true},
		{"", "::ffff:127.0.0.1", false, false},
		{"", "::ffff:169.254.169.254", false, false},
		{"127.0.0.0/8", "::ffff:127.0.0.1", true, true},
		{"fe80::/10", "fe80::1%eth0", true, true},
		{"fe80::/10", "fe81::1", true, true},
		{"fe80::/10", "fd00::1", false, false},
		{"10.1.0.0/16", "10.1.2.3", false, true},
		{"10.1.0.0/16", "10.2.0.1", false, false},
		{"64:ff9b::/96", "64:ff9b::808:808", false, true},
	} {
		var allow []netip.Prefix
		if tc.allow != "" {
			allow = append(allow, netip.MustParsePrefix(tc.allow))
		}
		err := newEgress(allow).check(netip.MustParseAddr(tc.addr), tc.plain)
		require.Equal(t, tc.ok, err == nil, "%+v", tc)
	}
	require.Error(t, newEgress(nil).check(netip.Addr{}, false))
}

// What the guard cannot read, it refuses.
func TestEgressControlFailsClosed(t *testing.T) {
	control := newEgress([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}).control(false)
	for _, address := range []string{"", "127.0.0.1", "localhost:80", "@unix", "[::1]", "1.2.3.4:99999"} {
		require.ErrorIs(t, control("tcp", address, nil), errEgressDenied, address)
	}
	require.NoError(t, control("tcp4", "127.0.0.1:80", nil))
}
