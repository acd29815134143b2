package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
)

const (
	noRetries = "let nothing between agents and gateways repeat a POST, whatever the answer or the silence (nginx: proxy_next_upstream off; Envoy: no retry_policy)"
	sameKeys  = "give every replica the same GATEWAY_SECRET_KEY"
	stop      = "stop agents from writing until it is found: a repeat may be a second write"
)

// writes makes writes at the sandbox vendor and repeats them.
func (x *examination) writes(ctx context.Context) {
	v, ready := x.prepare(ctx)
	x.vendor = v
	defer x.cleanUp(ctx)
	if !ready {
		return
	}
	first := x.sameKey(ctx)
	if first == nil {
		return
	}
	x.storeClock(first)
	x.derivedKey(ctx)
	x.atTheSameTime(ctx)
	x.slow(ctx)
	x.refusing(ctx)
}

// write is the body of a `do`.
func (x *examination) write(connection, key string, amount int, more string) request {
	body := fmt.Sprintf(`{"connection":%q,"action":"create_invoice","body":{"customer":"holdfast doctor","amount":%d,"currency":"EUR","memo":%q%s}`,
		connection, amount, x.run, more)
	if key != "" {
		body += fmt.Sprintf(`,"idempotency_key":%q`, x.run+"-"+key)
	}
	return request{method: "POST", path: "/v1/do", body: body + "}"}
}

// firstTime says whether a write that nobody made before was done just now.
func (x *examination) firstTime(check string, a *answer) bool {
	switch {
	case a.status == 200 && a.whole() && a.body.State == "succeeded" && !a.body.Replayed:
		return true
	case a.status == 200 && a.body.Replayed:
		x.problem(check, noRetries, "the first request of a write was answered as a repeat: somebody in between sends requests twice")
	case a.body.Code == "not_sent":
		x.problem(check, "name with --sandbox-listen an address of this machine that every replica reaches and may call (GATEWAY_EGRESS_ALLOW), or with --connection a connection of sandbox@1", "a gateway could not reach the sandbox vendor at %s, so nothing was shown", x.vendor.url)
	case a.body.Code == "in_flight":
		x.problem(check, noRetries, "the first request of a write was answered 409 in_flight: somebody in between sends requests twice")
	case a.body.Code != "":
		x.problem(check, "follow what it says, then run this again", "a write was answered %s: %s", a.said(), a.body.Detail)
	default:
		x.problem(check, "look at the proxy and its time-outs: an answer may take as long as the slowest action (10 minutes at most)", "a write got %s", a.said())
	}
	return false
}

// repeats says whether all answers are the first one given again.
func (x *examination) repeats(check string, first *answer, again []*answer) bool {
	var bad []string
	do := stop
	for _, a := range again {
		switch {
		case a.status == 200 && a.whole() && a.body.Replayed && a.body.ID == first.body.ID && bytes.Equal(a.body.Result, first.body.Result):
		case a.body.Code == "stored_answer_unreadable":
			bad, do = append(bad, a.said()), sameKeys
		case a.status == 200 && !a.body.Replayed, a.body.Code == "unknown_connection", a.body.Code == "unauthenticated":
			bad, do = append(bad, a.said()+" instead of a replay"), oneStore
		case a.status == 200 && !bytes.Equal(a.body.Result, first.body.Result):
			bad = append(bad, "another result")
		default:
			bad = append(bad, a.said())
		}
	}
	if len(bad) > 0 {
		x.problem(check, do, "%d of %d repeats were not given the first answer: %s", len(bad), len(again), each(bad))
	}
	return len(bad) == 0
}

// arrivedOnce says whether one request reached the vendor since it was counted,
// and how that is known.
func (x *examination) arrivedOnce(ctx context.Context, check string, before int64) (words string, once bool) {
	if before < 0 {
		return "arrivals could not be counted", true
	}
	n := x.vendor.arrivals(ctx) - before
	if n == 1 {
		return "one arrival at the vendor", true
	}
	if n > 1 && x.vendor.shared {
		return fmt.Sprintf("%d arrivals at a vendor that others may use, too", n), true
	}
	x.problem(check, stop+" ("+oneStore+")", "the vendor was called %d times for one write", n)
	return "", false
}

func (x *examination) sameKey(ctx context.Context) *answer {
	before := x.vendor.arrivals(ctx)
	first := x.ask(ctx, x.write(x.vendor.connection, "same", 1, ""))
	if !x.firstTime(checkSame, first) {
		return nil
	}
	again := x.repeats(checkSame, first, x.several(ctx, x.write(x.vendor.connection, "same", 1, "")))
	others := x.several(ctx, x.write(x.vendor.connection, "same", 2, ""))
	words, once := x.arrivedOnce(ctx, checkSame, before)
	if again && once {
		x.ok(checkSame, "%d repeats, the same answer, %s", x.o.Tries, words)
	}
	var bad []string
	do := stop
	for _, a := range others {
		if !a.is(422, "key_reused") {
			bad = append(bad, a.said())
			if a.status == 422 {
				do = "let the proxy pass the bodies and headers of 4xx"
			}
		}
	}
	if len(bad) > 0 {
		x.problem(checkOther, do, "a key that was used for another payload is not always 422 key_reused: %s", each(bad))
	} else {
		x.ok(checkOther, "always 422 key_reused")
	}
	return first
}

// derivedKey spells the same write in two ways.
func (x *examination) derivedKey(ctx context.Context) {
	before := x.vendor.arrivals(ctx)
	first := x.ask(ctx, x.write(x.vendor.connection, "", 3, ""))
	if !x.firstTime(checkDerived, first) {
		return
	}
	again := x.several(ctx, request{method: "POST", path: "/v1/do", body: fmt.Sprintf(
		`{"action":"create_invoice","body":{"memo":%q,"currency":"EUR","amount":3.0,"customer":"holdfast doctor"},"connection":%q}`, x.run, x.vendor.connection)})
	if !x.repeats(checkDerived, first, again) {
		return
	}
	if words, once := x.arrivedOnce(ctx, checkDerived, before); once {
		x.ok(checkDerived, "%d repeats in another spelling, the same answer, %s", x.o.Tries, words)
	}
}

// atTheSameTime lets all replicas have the same write at once.
func (x *examination) atTheSameTime(ctx context.Context) {
	before := x.vendor.arrivals(ctx)
	all := make([]*answer, x.o.Tries)
	r := x.write(x.vendor.connection, "at-once", 4, `,"behave":"slow","delay_ms":200`)
	var running sync.WaitGroup
	for i := range all {
		running.Go(func() { all[i] = x.send(ctx, r.method, x.o.URL+r.path, r.body, x.o.Key) })
	}
	running.Wait()
	var bad []string
	done := 0
	for _, a := range all {
		switch {
		case a.status == 200 && a.whole() && !a.body.Replayed:
			done++
		case a.status == 200 && a.whole(), a.status == 409, a.status == 429: // their bodies are another check's
		default:
			bad = append(bad, a.said())
		}
	}
	words, once := x.arrivedOnce(ctx, checkAtOnce, before)
	switch {
	case !once:
	case done > 1:
		x.problem(checkAtOnce, stop, "%d of %d identical requests were answered as done, each for itself", done, len(all))
	case len(bad) > 0:
		x.problem(checkAtOnce, "look at the gateways' logs of these answers, and at the load balancer's", "of %d identical requests some were answered %s", len(all), each(bad))
	case done == 0:
		x.problem(checkAtOnce, noRetries, "nobody was told that it was done first: somebody in between sends requests twice")
	default:
		x.ok(checkAtOnce, "%d identical requests, one done, %s", len(all), words)
	}
}

// slow makes a write that takes time, which somebody in between may not have.
func (x *examination) slow(ctx context.Context) {
	before := x.vendor.arrivals(ctx)
	first := x.ask(ctx, x.write(x.vendor.connection, "slow", 5, fmt.Sprintf(`,"behave":"slow","delay_ms":%d`, x.o.Slow.Milliseconds())))
	if !x.firstTime(checkSlow, first) {
		return
	}
	if words, once := x.arrivedOnce(ctx, checkSlow, before); once {
		x.ok(checkSlow, "a write of %s is waited for and not repeated, %s", x.o.Slow, words)
	}
}

// refusing lets the vendor say "not now", which a gateway answers with 503 and
// forgets. What is sent again then arrives again.
func (x *examination) refusing(ctx context.Context) {
	if x.vendor.refusing == "" {
		return // its credential is not ours to spoil
	}
	before := x.vendor.arrivals(ctx)
	a := x.ask(ctx, x.write(x.vendor.refusing, "", 6, ""))
	n := x.vendor.arrivals(ctx) - before
	switch {
	case n > 1:
		x.problem(checkRefusing, noRetries, "one request was answered %s and arrived %d times: somebody in between repeats what is answered 503", a.said(), n)
	case !a.is(503, "vendor_unavailable"):
		x.problem(checkErrors, "let the proxy pass status, headers and body of 503", "a vendor that is not available should be 503 vendor_unavailable, and it was %s", a.said())
	case a.header.Get("Retry-After") == "":
		x.problem(checkErrors, "let the proxy pass Retry-After", "an answer of 503 has no Retry-After")
	default:
		x.ok(checkRefusing, "503 arrives, and is not repeated by anybody in between")
	}
}

func quoted(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		return `""`
	}
	return string(raw)
}
