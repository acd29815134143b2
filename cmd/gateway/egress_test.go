package main

import (
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// TestNoWayInside: the name of a vendor that a manifest allows, answered with
// addresses that are none of the internet's. Nothing is connected to, the write is
// not_sent, and a tenant cannot name such an address itself.
func TestNoWayInside(t *testing.T) {
	vendor := vendortest.New(t, instant)
	var zone atomic.Pointer[[]netip.Addr]
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
	cfg.EgressAllow = nil
	cfg.wire.Resolver = vendortest.Resolver(func(string) []netip.Addr { return *zone.Load() })
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", "https://vendor.example")
	for i, answers := range [][]string{
		{"127.0.0.1"}, {"::1"}, {"169.254.169.254"}, {"fd00:ec2::254"}, {"10.0.0.1"}, {"100.100.100.200"}, {"64:ff9b::7f00:1"},
		{"2002:7f00:1::"}, {"10.0.0.1", "169.254.169.254", "::1"}, {"0.0.0.0"},
	} {
		addrs := make([]netip.Addr, 0, len(answers))
		for _, s := range answers {
			addrs = append(addrs, netip.MustParseAddr(s))
		}
		zone.Store(&addrs)
		r := a.do("c", "create", numbered(i)).is(503, "not_sent")
		require.Equal(t, "egress_denied", r.text("outcome.reason"), "%v: %s", answers, r.raw)
	}
	for _, base := range []string{
		vendor.URL(), "http://127.0.0.1:" + vendor.Port(), "https://127.0.0.1:" + vendor.Port(), "http://2130706433:" + vendor.Port(),
		"http://0x7f000001:" + vendor.Port(), "http://0177.0.0.1:" + vendor.Port(), "http://[::ffff:127.0.0.1]:" + vendor.Port(),
		"http://[64:ff9b::7f00:1]:" + vendor.Port(), "http://①②⑦.0.0.1:" + vendor.Port(), "http://localhost.:" + vendor.Port(),
		"http://127.0.0.1.:" + vendor.Port(), "https://vendor.example.", "https://vendor.example:8443", "https://vendor.example@127.0.0.1",
		"https://169.254.169.254/latest", "http://vendor.example",
	} {
		r := a.call("PUT", "/v1/connections/inside", map[string]any{
			"connector": "probe@1", "base_url": base, "credentials": map[string]string{"token": sentinel},
		})
		require.Equal(t, 400, r.status, "%s: %s", base, r.raw)
		require.Equal(t, "invalid_request", r.text("code"))
	}
	require.Zero(t, vendor.Connections())
}
