package wire_test

import (
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/vendortest"
	"holdfast.dev/gateway/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loopback is the network the fake vendors live in.
func loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

// client returns a Client that may reach v and trusts its authority.
func client(t testing.TB, v *vendortest.Vendor, change ...func(*wire.Config)) *wire.Client {
	t.Helper()
	cfg := wire.Config{EgressAllow: loopback()}
	if v != nil && v.URL()[:5] == "https" {
		cfg.RootCAs = v.CertPool()
	}
	for _, f := range change {
		f(&cfg)
	}
	c := wire.New(cfg)
	t.Cleanup(c.Close)
	return c
}

// post is a write with a small body.
func post(v *vendortest.Vendor) wire.Request {
	return wire.Request{Method: "POST", URL: v.URL() + "/v1/invoices?a=b", Body: []byte(`{"amount":1200}`)}
}
