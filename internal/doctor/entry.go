package doctor

import (
	"bytes"
	"context"
	"net/netip"
	"net/url"
	"strings"
)

// Names of the checks.
const (
	checkReach    = "key"
	checkClear    = "encryption"
	checkAdmin    = "admin listener"
	checkErrors   = "error bodies"
	checkShared   = "one store"
	checkProbe    = "probe"
	checkVendor   = "vendor reached"
	checkSame     = "same key"
	checkOther    = "other payload"
	checkDerived  = "derived key"
	checkAtOnce   = "at the same time"
	checkSlow     = "slow write"
	checkRefusing = "unavailable vendor"
	checkCleanUp  = "clean up"
	checkClock    = "clocks"
	checkStore    = "store's clock"
	checkReady    = "readiness"
	checkSetup    = "store"
	checkReached  = "replicas"
)

const oneStore = "give every replica the same GATEWAY_STORE (Redis; the embedded store is for one gateway) and take those out of the load balancer that have another"

// reach says whether the key is known wherever a request may end up. If not,
// nothing else can be learnt with it.
func (x *examination) reach(ctx context.Context) bool {
	all := x.several(ctx, request{method: "GET", path: "/v1/connectors"})
	var good, unknown int
	var others []string
	for _, a := range all {
		ours := strings.HasPrefix(a.header.Get("Request-Id"), "req_")
		switch {
		case a.status == 200 && ours:
			good++
		case a.is(401, "unauthenticated"):
			unknown++
		default:
			others = append(others, a.said())
		}
	}
	switch n := len(all); {
	case good == n:
		x.ok(checkReach, "known on all of %d connections", n)
		return true
	case len(others) == n:
		x.problem(checkReach, "look whether --url is the gateway's public address, whether a gateway is running behind it, and whether the key is a tenant's", "no request was answered as a gateway answers: %s", each(others))
	case unknown == n:
		x.problem(checkReach, "try the same key at a gateway directly. Works: a proxy takes the Authorization header away, let it through. Does not: it is mistyped, revoked, expired or another deployment's",
			"all of %d requests were 401: the key is unknown, or its Authorization header does not arrive", n)
	case good > 0 && unknown > 0:
		x.problem(checkShared, oneStore, "the key is known on %d of %d connections and unknown on %d: replicas have different stores", good, n, unknown)
	default:
		x.problem(checkReach, "look at the gateways that answer so, and at the load balancer's own log", "of %d requests %d were answered well, the others: %s", n, good, each(others))
		return good > 0 && unknown == 0
	}
	return false
}

// inClear looks at how the key travels.
func (x *examination) inClear() {
	u, err := url.Parse(x.o.URL)
	if err != nil || u.Scheme == "https" {
		x.ok(checkClear, "the address is https")
		return
	}
	if addr, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && addr.IsLoopback() {
		x.ok(checkClear, "in clear, and on this machine only")
		return
	}
	x.found(checkClear, Warning, "keys and answers cross the network in clear", "give the load balancer a certificate, or the gateways (GATEWAY_TLS_CERT), and use https")
}

// adminListener looks for what must not be at the public address: it asks for
// no key.
func (x *examination) adminListener(ctx context.Context) {
	var open, other []string
	for path, mark := range map[string]string{"/metrics": "holdfast_", "/healthz": `"status":"ok"`, "/readyz": ""} {
		a := x.ask(ctx, request{method: "GET", path: path, anonymous: true})
		switch {
		case a.err != nil || a.is(404, "not_found"):
		case path == "/readyz" && (bytes.Contains(a.raw, []byte(`"status":"ready"`)) || a.body.Code == "store_unavailable"):
			open = append(open, path)
		case mark != "" && bytes.Contains(a.raw, []byte(mark)):
			open = append(open, path)
		case a.status < 300:
			other = append(other, path)
		}
	}
	switch {
	case len(open) > 0:
		x.problem(checkAdmin, "route nothing but GATEWAY_LISTEN to the public address; keep GATEWAY_ADMIN_LISTEN on a private network", "anybody can read %s", strings.Join(sorted(open), ", "))
	case len(other) > 0:
		x.found(checkAdmin, Warning, "something that is not a gateway answers at "+strings.Join(sorted(other), ", "), "make sure that it tells strangers nothing")
	default:
		x.ok(checkAdmin, "not at the public address")
	}
}

// errorsPass provokes refusals and looks whether they arrive as they were sent.
// An agent that cannot read one does not know what to do next.
func (x *examination) errorsPass(ctx context.Context) {
	var bad []string
	for _, probe := range []struct {
		request
		status int
		codes  string
	}{
		{request{method: "GET", path: "/v1/connectors", anonymous: true}, 401, "unauthenticated"},
		{request{method: "POST", path: "/v1/do", body: "{"}, 400, "invalid_json unauthenticated"},
		{request{method: "GET", path: "/v1/connections/" + x.run + "-absent"}, 404, "not_found unknown_connection"},
		{request{method: "PUT", path: "/v1/do", body: "{}"}, 405, "method_not_allowed"},
	} {
		a := x.ask(ctx, probe.request)
		if a.is(401, "unauthenticated") {
			continue // the check of the key says so
		}
		if a.status != probe.status || !strings.Contains(" "+probe.codes+" ", " "+a.body.Code+" ") || !a.whole() {
			bad = append(bad, a.said()+" where the gateway says "+strings.Fields(probe.codes)[0])
		}
	}
	if len(bad) > 0 {
		x.problem(checkErrors, "let the proxy pass status, headers and body of every answer: no error pages of its own for 4xx, no header taken away", "answers do not arrive as they were sent: %s", each(bad))
		return
	}
	x.ok(checkErrors, "refusals arrive as the gateway sends them")
}
