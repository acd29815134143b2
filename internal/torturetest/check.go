package torturetest

import (
	"fmt"
	"slices"
)

// row is what the checker reads of an audit row.
type row struct {
	Event     string `json:"event"`
	ActionID  string `json:"action_id"`
	RequestID string `json:"request_id"`
}

// account is everything that is known of a run when it is over and mended.
type account struct {
	ops      []op
	notes    []note
	final    map[string]note // the last answer to each op
	effects  []effect
	arrivals []arrival
	rows     []row
	inFlight int // actions that are still in flight
	barred   []span
}

// violations compares the accounts. Each line is a promise that was broken.
func (a *account) violations() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	effects := map[string][]effect{}
	for _, e := range a.effects {
		effects[e.op] = append(effects[e.op], e)
	}
	heard := map[string][]note{}
	for _, n := range a.notes {
		if n.code == "rate_limited" {
			bad("%s: refused by a limit that nobody came near", n.op)
		}
		if n.other {
			if n.status == 200 || n.status == 423 || n.status == 424 {
				bad("%s: its key with another payload was answered %d", n.op, n.status)
			}
			continue
		}
		heard[n.op] = append(heard[n.op], n)
	}
	for _, o := range a.ops {
		a.checkOp(o, effects[o.name], append(heard[o.name], a.final[o.name]), bad)
		delete(effects, o.name)
	}
	for name, e := range effects {
		bad("%s: %d effects of something nobody asked for", name, len(e))
	}
	a.checkArrivals(bad)
	a.checkRows(bad)
	if a.inFlight > 0 {
		bad("%d writes are in flight although every lease is over", a.inFlight)
	}
	return out
}

// checkOp holds what was heard of one write against what the vendor did.
func (a *account) checkOp(o op, effects []effect, heard []note, bad func(string, ...any)) {
	if len(effects) > 1 {
		bad("%s (class %s): %d effects", o.name, o.class, len(effects))
	}
	var result string
	statuses := map[int]int{}
	for _, n := range heard {
		statuses[n.status]++
		if n.status != 200 {
			continue
		}
		if result == "" {
			result = n.result
		}
		if n.result != result {
			bad("%s: two answers: %s and %s", o.name, result, n.result)
		}
	}
	if statuses[200] > 0 {
		switch {
		case len(effects) == 0:
			bad("%s: success, and the vendor did nothing", o.name)
		case len(effects) == 1 && effects[0].json() != result:
			bad("%s: the answer %s is not of the effect %s", o.name, result, effects[0].json())
		}
	}
	if statuses[424] > 0 && (statuses[200] > 0 || len(effects) > 0) {
		bad("%s: refused, and yet it was done", o.name)
	}
	if len(a.final) == 0 {
		return // the run was given up before everything was mended
	}
	switch last := a.final[o.name]; {
	case last.status == 200, last.status == 423, last.status == 424:
	default:
		bad("%s: everything is mended, and the last answer is %d %s", o.name, last.status, last.code)
	}
	if len(effects) > 0 && statuses[200] == 0 && statuses[423] == 0 {
		bad("%s: an effect that nobody heard of: %v", o.name, statuses)
	}
}

// checkArrivals counts what each action, which has one vendor key, put on the
// wire: one write, or two where class a was sent again to find out.
func (a *account) checkArrivals(bad func(string, ...any)) {
	class := map[string]string{}
	for _, o := range a.ops {
		class[o.name] = o.class
	}
	byKey := map[string]int{}
	ops := map[string]string{}
	for _, v := range a.arrivals {
		byKey[v.key]++
		if other, ok := ops[v.key]; ok && other != v.op {
			bad("the vendor key of %s came with %s too", other, v.op)
		}
		ops[v.key] = v.op
	}
	for key, n := range byKey {
		if n > 1 && class[ops[key]] != "a" {
			bad("%s: one action reached the vendor %d times", ops[key], n)
		}
	}
}

// endings are the events that say how an attempt ended.
var endings = []string{"succeeded", "refused", "held", "not_sent", "released", "lease_lost"}

// checkRows holds the audit against the answers: every action has one claim, and
// every answer of a certain kind has the row that says so.
func (a *account) checkRows(bad func(string, ...any)) {
	claims, ends := map[string]int{}, map[string]int{}
	requests := map[string][]string{}
	for _, r := range a.rows {
		if r.Event == "claimed" {
			claims[r.ActionID]++
		}
		if slices.Contains(endings, r.Event) {
			ends[r.ActionID]++
		}
		requests[r.RequestID] = append(requests[r.RequestID], r.Event)
	}
	for id, n := range claims {
		if n != 1 {
			bad("action %s has %d rows of its claim", id, n)
		}
		if ends[id] == 0 {
			bad("action %s was claimed and no row says how it ended", id)
		}
	}
	for id := range ends {
		if claims[id] == 0 {
			bad("action %s ended and was never claimed", id)
		}
	}
	for _, n := range a.notes {
		if slices.ContainsFunc(a.barred, func(s span) bool { return n.began.After(s.from) && n.ended.Before(s.to) }) &&
			slices.Contains(requests[n.requestID], "claimed") {
			bad("%s: claimed (%s) although every gateway had said that it claims nothing", n.op, n.requestID)
		}
		var want []string
		switch {
		case n.status == 200 && n.replayed:
			want = []string{"replayed"}
		case n.status == 200:
			want = []string{"claimed"}
		case n.status == 409 && n.code == "in_flight":
			want = []string{"in_flight"}
		case n.status == 422 && n.code == "key_reused":
			want = []string{"key_reused"}
		case n.status == 423 && n.code == "outcome_unknown":
			want = []string{"claimed", "held_repeat", "lease_lost"}
		case n.status == 424:
			want = []string{"claimed", "replayed"}
		default:
			continue
		}
		if !slices.ContainsFunc(want, func(e string) bool { return slices.Contains(requests[n.requestID], e) }) {
			bad("%s: the answer %d %s (%s) has no row %v, but %v", n.op, n.status, n.code, n.requestID, want, requests[n.requestID])
		}
	}
}
