package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
)

// auditRows reads a tenant's whole log, oldest first.
func (a *agent) auditRows() []audit.Row {
	a.t.Helper()
	var rows []audit.Row
	for cursor := ""; ; {
		var page struct {
			Data       []json.RawMessage
			NextCursor string `json:"next_cursor"`
		}
		r := a.must(200, "GET", "/v1/audit?order=oldest&limit=200&cursor="+url.QueryEscape(cursor), nil)
		require.NoError(a.t, json.Unmarshal(r.raw, &page))
		for _, raw := range page.Data {
			row, err := audit.Decode(raw)
			require.NoError(a.t, err, "%s", raw)
			rows = append(rows, row)
		}
		if cursor = page.NextCursor; cursor == "" {
			return rows
		}
	}
}

// actionStates reads the state of every action of a tenant.
func (a *agent) actionStates() map[string]string {
	a.t.Helper()
	states := map[string]string{}
	for cursor := ""; ; {
		var page struct {
			Data       []struct{ ID, State string }
			NextCursor string `json:"next_cursor"`
		}
		r := a.must(200, "GET", "/v1/actions?limit=200&cursor="+url.QueryEscape(cursor), nil)
		require.NoError(a.t, json.Unmarshal(r.raw, &page))
		for _, action := range page.Data {
			require.NotContains(a.t, states, action.ID, "listed twice")
			states[action.ID] = action.State
		}
		if cursor = page.NextCursor; cursor == "" {
			return states
		}
	}
}

// recorded is what an answer says was written down for it, in order. More than
// one is possible where the call also noticed that a lease had lapsed.
func recorded(c tried) [][]string {
	code := ""
	if c.reply.status >= 400 {
		code = c.reply.text("code")
	}
	replayed := c.reply.body["replayed"] == true
	switch {
	case c.question == "resolve" && c.reply.status == 200 && c.reply.text("state") == "succeeded":
		return [][]string{{"resolved"}, {"lease_lost", "resolved"}}
	case c.question == "resolve" && c.reply.status == 200:
		return [][]string{{"resolved", "not_done"}, {"lease_lost", "resolved", "not_done"}}
	case c.question == "resolve":
		return [][]string{{"denied"}, {"lease_lost", "denied"}}
	case code == "" && replayed, code == "vendor_refused" && replayed:
		return [][]string{{"replayed"}}
	case code == "":
		return [][]string{{"claimed", "succeeded"}}
	case code == "vendor_refused":
		return [][]string{{"claimed", "refused"}}
	case code == "in_flight":
		return [][]string{{"in_flight"}}
	case code == "key_reused":
		return [][]string{{"key_reused"}}
	case code == "outcome_unknown" && replayed:
		return [][]string{{"held_repeat"}, {"lease_lost", "held_repeat"}}
	case code == "outcome_unknown":
		// The last: that it was held was stored, and the store's answer lost; before
		// it was stored again, somebody had resolved the write.
		return [][]string{{"claimed", "held"}, {"claimed", "late_answer"}, {"claimed", "held", "late_answer"}}
	case code == "twin_unsettled":
		return [][]string{{"twin_refused"}, {"lease_lost", "twin_refused"}}
	case code == "vendor_rate_limited":
		return [][]string{{"claimed", "released"}}
	default:
		return [][]string{{"denied"}}
	}
}

// possible says whether the rows of a call that got no answer are those of a
// call that was cut off somewhere, once.
func possible(events []string) bool {
	all := strings.Join(events, " ")
	for _, whole := range []string{
		"claimed succeeded", "claimed refused", "claimed released", "claimed not_sent", "claimed held", "claimed late_answer", "claimed held late_answer",
		"replayed", "in_flight", "key_reused", "twin_refused", "denied", "resolved not_done",
		"lease_lost held_repeat", "lease_lost twin_refused", "held_repeat", "lease_lost resolved not_done", "resolved",
	} {
		if strings.HasPrefix(whole+" ", all+" ") || all == "" {
			return true
		}
	}
	return false
}

// ends are the events that end a write, and the state each leaves it in.
var ends = map[audit.Event]string{
	audit.Succeeded: "succeeded", audit.Refused: "refused", audit.NotSent: "not_done", audit.Released: "not_done",
	audit.NotDone: "not_done", audit.Lapsed: "lapsed",
}

// verify compares what the callers, the vendor, the records, the audit and the
// figures of one tenant say. It returns how many rows and arrivals there were.
func (p *party) verify(admin *agent) (rows, arrivals int) {
	p.t.Helper()
	t, log := p.t, p.auditRows()

	byRequest, byLabel := map[string][]string{}, map[string][]string{}
	of := map[string]map[audit.Event]int{} // action -> event -> rows
	writeOf, end := map[string]int{}, map[string]string{}
	numberOf := map[string]int{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		numberOf[c.label] = c.n
	}
	for _, row := range log {
		require.Equal(t, p.name, row.Tenant, "a row of another tenant's")
		byRequest[row.RequestID] = append(byRequest[row.RequestID], string(row.Event))
		if label := row.Meta["call"]; label != "" {
			byLabel[label] = append(byLabel[label], string(row.Event))
		}
		if row.ActionID == "" {
			continue
		}
		if of[row.ActionID] == nil {
			of[row.ActionID] = map[audit.Event]int{}
		}
		of[row.ActionID][row.Event]++
		if row.Event == audit.Claimed {
			writeOf[row.ActionID] = numberOf[row.Meta["call"]]
		}
		state, ends := ends[row.Event]
		if row.Event == audit.Resolved && row.Outcome == "succeeded" {
			state, ends = "succeeded", true
		}
		if ends {
			require.Empty(t, end[row.ActionID], "%s ended twice: %s", row.ActionID, row.Event)
			end[row.ActionID] = state
		}
	}

	// Each call left the rows its answer speaks of, once.
	for _, c := range p.calls {
		if c.sure {
			require.Contains(t, recorded(c), byRequest[c.reply.header.Get("Request-Id")], "%s: %d %s", c.label, c.reply.status, c.reply.raw)
		} else if c.question == "do" {
			require.True(t, possible(byLabel[c.label]), "%s left %v", c.label, byLabel[c.label])
		}
	}

	// Each row of a write has its record, and each record its rows.
	require.Equal(t, end, p.actionStates())
	succeeded, lost, notSent := map[int]int{}, map[int]int{}, map[int]int{}
	claimed := map[int]int{}
	for id, events := range of {
		n, known := writeOf[id]
		require.True(t, known, "%s was never claimed", id)
		require.Equal(t, 1, events[audit.Claimed], id)
		require.LessOrEqual(t, events[audit.Held]+events[audit.LeaseLost], 1, "%s in doubt twice", id)
		require.LessOrEqual(t, events[audit.Resolved], 1, id)
		if events[audit.Held] > 0 && events[audit.LateAnswer] > 0 {
			require.Equal(t, 1, events[audit.Resolved], "%s was held, and its owner came late, though nobody resolved it", id)
		}
		claimed[n]++
		switch {
		case end[id] == "succeeded":
			succeeded[n]++
		case events[audit.NotSent] > 0:
			notSent[n]++
		case events[audit.LeaseLost] > 0 || events[audit.Held] > 0:
			lost[n]++ // its owner or its answer; then found not done
		}
	}

	// What the vendor did is what is said to be done, write by write.
	maps.DeleteFunc(p.performed, func(_, times int) bool { return times == 0 })
	require.Equal(t, p.performed, succeeded)
	for n, times := range p.performed {
		require.Equal(t, 1, times, "write %d was done more than once", n)
	}
	never := 0
	for n, begun := range claimed {
		most := begun - notSent[n]
		require.LessOrEqual(t, p.arrived[n], most, "write %d arrived more often than it was begun", n)
		require.GreaterOrEqual(t, p.arrived[n], most-lost[n], "write %d is said to have been sent", n)
		never += most - p.arrived[n]
	}
	sum := func(of map[int]int) (total int) {
		for _, n := range of {
			total += n
		}
		return total
	}
	figures := p.figures(admin, log)
	require.EqualValues(t, sum(p.performed), figures["writes"])
	require.EqualValues(t, sum(p.arrived), figures["claimed"]-int64(sum(notSent)+never))
	require.EqualValues(t, sum(p.refused), figures["refusals"]+int64(p.refusalsLost(of, writeOf)))
	require.Equal(t, figures["claimed"], figures["writes"]+figures["refusals"]+figures["not_done"]+figures["lapsed"])
	return len(log), sum(p.arrived)
}

// refusalsLost counts writes that the vendor refused and whose answer nobody
// got, because the owner was killed: they were held and found not done.
func (p *party) refusalsLost(of map[string]map[audit.Event]int, writeOf map[string]int) (lost int) {
	refusals := map[int]int{}
	for id, events := range of {
		refusals[writeOf[id]] += events[audit.Refused]
	}
	for n, times := range p.refused {
		lost += times - refusals[n]
	}
	return lost
}

// figures are the tenant's totals, after they were compared with a count of the
// rows and with themselves by every dimension and for the host.
func (p *party) figures(admin *agent, log []audit.Row) map[string]int64 {
	p.t.Helper()
	want := map[string]int64{}
	for _, row := range log {
		for _, column := range figuresOf(row) {
			want[column]++
		}
	}
	var got struct{ Total map[string]int64 }
	period := usagePeriod(log)
	r := p.must(200, "GET", "/v1/usage"+period, nil)
	require.NoError(p.t, json.Unmarshal(r.raw, &got))
	maps.DeleteFunc(got.Total, func(_ string, n int64) bool { return n == 0 })
	require.Equal(p.t, want, got.Total)
	for _, by := range []string{"connection", "action", "key", "day", "day,connection,action,key"} {
		var lines struct{ Data []map[string]any }
		require.NoError(p.t, json.Unmarshal(p.must(200, "GET", "/v1/usage"+period+"&by="+by, nil).raw, &lines))
		sum := map[string]int64{}
		for _, line := range lines.Data {
			for column := range got.Total {
				n, _ := line[column].(float64)
				sum[column] += int64(n)
			}
		}
		require.Equal(p.t, got.Total, sum, by)
	}
	host := admin.must(200, "GET", "/v1/tenants/"+p.name+"/usage"+period, nil)
	require.Equal(p.t, r.body["total"], host.body["total"])
	return got.Total
}

func usagePeriod(log []audit.Row) string {
	first, last := log[0].At.UTC(), log[len(log)-1].At.UTC().AddDate(0, 0, 1)
	return fmt.Sprintf("?from=%s&to=%s", first.Format("2006-01-02"), last.Format("2006-01-02"))
}

// figuresOf is the table of docs/audit.md once more, written down anew.
func figuresOf(row audit.Row) []string {
	columns := map[audit.Event][]string{
		"claimed": {"claimed"}, "succeeded": {"writes"}, "refused": {"refusals"},
		"not_sent": {"not_done"}, "released": {"not_done"}, "not_done": {"not_done"}, "lapsed": {"lapsed"},
		"held": {"held"}, "lease_lost": {"held"}, "resolved": {"resolved"},
		"replayed": {"replays"}, "in_flight": {"in_flight", "duplicates_prevented"},
		"held_repeat": {"held_repeats", "duplicates_prevented"}, "twin_refused": {"twin_refused", "duplicates_prevented"},
		"key_reused": {"key_reused"}, "denied": {"denied"}, "rate_limited": {"rate_limited"},
	}[row.Event]
	switch {
	case row.Event == "resolved" && row.Outcome == "succeeded":
		return append(slices.Clone(columns), "writes")
	case row.Event == "replayed" && row.Outcome == "succeeded":
		return append(slices.Clone(columns), "duplicates_prevented")
	}
	return columns
}

// proven waits until the tenant's log is sealed to its end, and insists that it
// is whole.
func (p *party) proven(rows int) {
	p.t.Helper()
	eventually(p.t, 60*time.Second, "the log is sealed to its end", func() bool {
		r := p.must(200, "GET", "/v1/audit/verify", nil)
		require.Equal(p.t, true, r.body["whole"], "%s", r.raw)
		return fmt.Sprint(r.body["proven_through_row"]) == fmt.Sprint(rows)
	})
}
