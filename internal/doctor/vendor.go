package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/sandbox"
)

// vendor is the sandbox that is written to, and the connections to it.
type vendor struct {
	url        string
	connection string
	refusing   string          // a connection whose credential the vendor does not take
	server     *sandbox.Server // nil: somebody else's
	shared     bool            // others may write to it meanwhile
	made       []string        // connections to delete
	count      func(ctx context.Context) int64
}

// arrivals is how many writes arrived so far, -1 if that is not known.
func (v *vendor) arrivals(ctx context.Context) int64 { return v.count(ctx) }

// prepare finds or makes a connection to a sandbox vendor.
func (x *examination) prepare(ctx context.Context) (*vendor, bool) {
	if x.o.Connection != "" {
		return x.existing(ctx)
	}
	v := &vendor{}
	server, err := sandbox.Start(x.o.SandboxListen, sandbox.Options{Token: x.run})
	if err != nil {
		x.problem(checkProbe, "name with --sandbox-listen an address of this machine", "the sandbox vendor cannot listen: %s", err)
		return v, false
	}
	v.server, v.url = server, server.URL
	v.count = func(context.Context) int64 { return server.Count().Arrivals }
	if !x.connect(ctx, v, x.run, x.run) {
		return v, false
	}
	v.connection = x.run
	if x.connect(ctx, v, x.run+"-refusing", "not the token") {
		v.refusing = x.run + "-refusing"
	}
	return v, x.seenByAll(ctx, v) && x.usedByAll(ctx, v)
}

// usedByAll says whether each replica can open the connection's credential and
// call the vendor: a write shows it only of the one that makes it.
func (x *examination) usedByAll(ctx context.Context, v *vendor) bool {
	var bad []string
	passed := 0
	for _, a := range x.several(ctx, request{method: "POST", path: "/v1/connections/" + v.connection + "/test"}) {
		switch {
		case a.status == 200 && a.body.Verdict == "passed":
			passed++
		case a.body.Detail != "":
			bad = append(bad, a.body.Detail)
		default:
			bad = append(bad, a.said())
		}
	}
	switch {
	case len(bad) == 0:
		x.ok(checkVendor, "called by the replicas on all of %d connections", passed)
	case passed == 0:
		x.problem(checkVendor, "name with --sandbox-listen an address of this machine that every replica reaches and may call (GATEWAY_EGRESS_ALLOW), or with --connection a connection of sandbox@1",
			"the replicas cannot use the sandbox vendor at %s, so nothing was shown of writes: %s", v.url, each(bad))
	default:
		x.problem(checkVendor, "give every replica the same GATEWAY_SECRET_KEY and GATEWAY_EGRESS_ALLOW, and the same network",
			"replicas differ: the sandbox vendor was called on %d of %d connections, elsewhere: %s", passed, x.o.Tries, each(bad))
	}
	return len(bad) == 0
}

func (x *examination) connect(ctx context.Context, v *vendor, name, token string) bool {
	a := x.ask(ctx, request{method: "PUT", path: "/v1/connections/" + name, body: fmt.Sprintf(
		`{"connector":"sandbox@1","base_url":%s,"credentials":{"token":%s}}`, quoted(v.url), quoted(token))})
	switch {
	case a.status == 200 || a.status == 201:
		v.made = append(v.made, name)
		return true
	case a.body.Code == "forbidden":
		x.problem(checkProbe, "give a key with the scopes do and manage, or name a connection of sandbox@1 with --connection", "the key may not make the connection that writes are shown with")
	case strings.Contains(string(a.raw), "/base_url"):
		x.problem(checkProbe, "open the address for egress for the time of this (GATEWAY_EGRESS_ALLOW), name another with --sandbox-listen, or name a connection of sandbox@1 with --connection", "the gateway may not call the sandbox vendor at %s, so nothing was shown of writes", v.url)
	default:
		x.problem(checkProbe, "follow what it says, then run this again", "the connection that writes are shown with was not made: %s %s", a.said(), a.body.Detail)
	}
	return false
}

// seenByAll says whether what was written through one connection is there on all.
func (x *examination) seenByAll(ctx context.Context, v *vendor) bool {
	missing := 0
	all := x.several(ctx, request{method: "GET", path: "/v1/connections/" + v.connection})
	for _, a := range all {
		if a.status == 404 {
			missing++
		}
	}
	if missing > 0 {
		x.problem(checkShared, oneStore, "what was written is not there on %d of %d connections: replicas have different stores", missing, len(all))
		return false
	}
	x.ok(checkShared, "what was written is there on all of %d connections", len(all))
	return true
}

// existing uses a connection that is there already. Its vendor may be out of
// this machine's reach; then arrivals are not counted.
func (x *examination) existing(ctx context.Context) (*vendor, bool) {
	v := &vendor{connection: x.o.Connection, shared: true}
	a := x.ask(ctx, request{method: "GET", path: "/v1/connections/" + x.o.Connection})
	if a.status != 200 || !strings.HasPrefix(a.body.Connector, "sandbox@") {
		x.problem(checkProbe, "name a connection of sandbox@1: this makes writes", "--connection %s cannot be used: %s", x.o.Connection, firstOf(a.body.Connector, a.said()))
		return v, false
	}
	v.url = a.body.BaseURL
	v.count = func(ctx context.Context) int64 {
		// A sandbox without a token of its own takes any.
		a := x.send(ctx, "GET", v.url+"/v1/count", "", "doctor")
		var count sandbox.Count
		if a.status != 200 || json.Unmarshal(a.raw, &count) != nil {
			return -1
		}
		return count.Arrivals
	}
	return v, x.seenByAll(ctx, v)
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

const cleanUpPatience = 20 * time.Second

// cleanUp deletes what was made, on every store there may be, also when ctx has
// ended.
func (x *examination) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpPatience)
	defer cancel()
	v := x.vendor
	left := []string{}
	for _, name := range v.made {
		// Several times: replicas may have different stores.
		for _, a := range x.several(ctx, request{method: "DELETE", path: "/v1/connections/" + name}) {
			if a.status != 204 && a.status != 404 {
				left = append(left, name+": "+a.said())
			}
		}
	}
	if v.server != nil {
		_ = v.server.Close() // it ends with this process in any case
	}
	if len(left) > 0 {
		x.found(checkCleanUp, Warning, "connections were left behind: "+each(left), "delete them by hand, once nothing of theirs is in flight or held")
	}
}
