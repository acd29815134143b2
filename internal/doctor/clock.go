package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reading is what one answer's Date says, and when it was here.
type reading struct {
	gateway time.Time
	here    time.Time
	took    time.Duration
}

// tolerance is above what a machine that keeps its time is off by, the second
// that Date is rounded to included.
const tolerance = 5 * time.Second

// offset is how far the gateway is ahead, at the least, given that the answer was
// dated at some time while it was waited for.
func (r reading) offset() time.Duration {
	early, late := r.here.Add(-r.took), r.here
	switch {
	case r.gateway.After(late):
		return r.gateway.Sub(late)
	case r.gateway.Add(time.Second).Before(early):
		return r.gateway.Add(time.Second).Sub(early) // negative: behind
	default:
		return 0
	}
}

func (x *examination) clock() {
	if len(x.clocks) == 0 {
		x.found(checkClock, NotShown, "no answer had a Date", "")
		return
	}
	var offsets []time.Duration
	for _, r := range x.clocks {
		offsets = append(offsets, r.offset())
	}
	least, most := slices.Min(offsets), slices.Max(offsets)
	switch {
	case most-least > tolerance:
		x.found(checkClock, Warning, fmt.Sprintf("answers are dated up to %s apart: machines disagree about the time", (most-least).Round(time.Second)), "let every machine keep its time (NTP, chrony)")
	case max(most, -least) > tolerance:
		x.found(checkClock, Warning, fmt.Sprintf("this machine and the gateway (or what dates its answers) are %s apart", max(most, -least).Round(time.Second)), "find out which is wrong, and let it keep its time (NTP, chrony)")
	default:
		x.ok(checkClock, "dates of %d answers fit this machine's", len(x.clocks))
	}
}

// storeClock compares when the store dated a claim with when the gateway dated
// the answer.
func (x *examination) storeClock(first *answer) {
	at, err := timeOf(first)
	if err != nil || first.body.CreatedAt.IsZero() {
		x.found(checkStore, NotShown, "the answer had no Date", "")
		return
	}
	off := reading{gateway: first.body.CreatedAt, here: at.Add(time.Second), took: first.took + time.Second}.offset()
	if off.Abs() > tolerance {
		x.found(checkStore, Warning, fmt.Sprintf("the store and the gateway are %s apart", off.Abs().Round(time.Second)), "let the store's machine and the gateways' keep their time (NTP, chrony)")
		return
	}
	x.ok(checkStore, "fits the gateway's")
}

// countRequests is how many requests of do each replica has seen, by its metrics.
func (x *examination) countRequests(ctx context.Context) map[string]float64 {
	seen := map[string]float64{}
	for _, admin := range x.o.AdminURLs {
		a := x.send(ctx, "GET", admin+"/metrics", "", "")
		if a.status == 200 {
			seen[admin] = sum(a.raw, "holdfast_http_requests_total", `route="/v1/do"`)
		}
	}
	return seen
}

// sum adds up the samples of a metric that have a label.
func sum(text []byte, metric, label string) float64 {
	total := 0.0
	for _, line := range samples(text, metric) {
		if value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64); err == nil && strings.Contains(line, label) {
			total += value
		}
	}
	return total
}

func samples(text []byte, metric string) []string {
	var list []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, metric+"{") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return list
}
