package doctor

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

func timeOf(a *answer) (time.Time, error) { return http.ParseTime(a.header.Get("Date")) }

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// replicas looks at each admin listener that was named.
func (x *examination) replicas(ctx context.Context, before map[string]float64) {
	if len(x.o.AdminURLs) == 0 {
		x.found(checkReady, NotShown, "what each replica says of its store was not asked", "from inside, name every replica's admin listener with --admin-url")
		return
	}
	var stores []string
	for _, admin := range x.o.AdminURLs {
		x.readiness(ctx, admin)
		stores = append(stores, x.setup(ctx, admin))
	}
	if len(stores) > 1 && slices.Contains(stores, "embedded") {
		x.problem(checkSetup, oneStore, "there are %d replicas, and one at least has an embedded store", len(stores))
	}
	after := x.countRequests(ctx)
	var missed []string
	for _, admin := range x.o.AdminURLs {
		if after[admin] <= before[admin] {
			missed = append(missed, admin)
		}
	}
	if len(missed) > 0 {
		x.found(checkReached, Warning, "no probe reached "+strings.Join(missed, ", "), "look whether the load balancer sends it anything; if so, repeat with more --tries")
		return
	}
	x.ok(checkReached, "probes reached each of %d", len(x.o.AdminURLs))
}

func (x *examination) readiness(ctx context.Context, admin string) {
	switch a := x.send(ctx, "GET", admin+"/readyz", "", ""); {
	case a.status == 200 && strings.Contains(string(a.raw), `"ready"`):
		x.ok(checkReady, "%s: the store is safe to claim in", admin)
	case a.body.Detail != "":
		x.problem(checkReady, "mend what it names; nothing new is sent meanwhile", "%s: %s", admin, a.body.Detail)
	default:
		x.problem(checkReady, "look whether --admin-url is GATEWAY_ADMIN_LISTEN of a gateway that runs", "%s: %s", admin, a.said())
	}
}

// setup reads how sure a claim is before anything is sent, and returns the kind
// of the store.
func (x *examination) setup(ctx context.Context, admin string) (kind string) {
	info := samples(x.send(ctx, "GET", admin+"/metrics", "", "").raw, "holdfast_store_info")
	if len(info) != 1 {
		x.found(checkSetup, NotShown, admin+" does not say which store it has", "it may be of an older release")
		return ""
	}
	label := func(name string) string {
		_, rest, _ := strings.Cut(info[0], name+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	kind, ack := label("kind"), label("ack")
	if ack == "none" {
		x.found(checkSetup, Warning, admin+": GATEWAY_REDIS_ACK is none: a crash of Redis can lose a claim, and the write is then made twice", "set it to auto, aof or replicas:N")
		return kind
	}
	x.ok(checkSetup, "%s: %s, a claim waits for: %s", admin, kind, ack)
	return kind
}
