package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/usage"
)

// meter adds up audit rows.
type meter interface {
	Report(ctx context.Context, scope ledger.Scope, q usage.Query) (usage.Report, error)
}

type usageHandler struct {
	meter meter
	now   func() time.Time
}

// defaultDays is how many days a report has that names none, today included.
const defaultDays = 30

func (h *usageHandler) show(c *call) error { return h.showFor(c, c.who.Scope) }

// showFor reports on a scope. Parameters that the caller has read itself are
// named in also.
func (h *usageHandler) showFor(c *call, scope ledger.Scope, also ...string) error {
	q := c.query(append(also, "from", "to", "by")...)
	ask := usage.Query{By: q.dimensions("by")}
	ask.To = q.day("to", usage.DayOf(h.now())+1)
	ask.From = q.day("from", ask.To-defaultDays)
	if days := ask.To - ask.From; len(q.bad) == 0 && (days < 1 || days > usage.MaxDays) {
		q.refuse("to", fmt.Sprintf("this must be 1 to %d days after from; it is the first day that is not counted", usage.MaxDays))
	}
	if err := q.err(); err != nil {
		return err
	}
	report, err := h.meter.Report(c.ctx(), scope, ask)
	if errors.Is(err, usage.ErrLines) {
		return refuse(actions.InvalidRequest, fmt.Sprintf("This would be more than %d lines. Ask for fewer days, or by less.", usage.MaxLines))
	}
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodeUsage(ask, report))
}

func (q *query) day(name string, otherwise usage.Day) usage.Day {
	s := q.text(name)
	if s == "" {
		return otherwise
	}
	d, ok := usage.ParseDay(s)
	if !ok {
		q.refuse(name, "this must be a day in UTC, such as 2026-01-31")
	}
	return d
}

func (q *query) dimensions(name string) []usage.Dimension {
	s := q.text(name)
	if s == "" {
		return nil
	}
	var by []usage.Dimension
	for word := range strings.SplitSeq(s, ",") {
		d := usage.Dimension(word)
		if !slices.Contains(usage.Dimensions(), d) || slices.Contains(by, d) {
			q.refuse(name, "this must be connection, action, key or day, or several of them with commas between")
			return nil
		}
		by = append(by, d)
	}
	return by
}

func encodeUsage(q usage.Query, r usage.Report) []byte {
	o := newObject(512 * (len(r.Lines) + 2))
	o.text("from", q.From.String())
	o.text("to", q.To.String())
	o.time("at", r.At)
	o.object("total", func(o *object) { writeCounts(o, r.Total) })
	o.list("data", len(r.Lines), func(i int, o *object) {
		line := r.Lines[i]
		for _, by := range q.By {
			switch by {
			case usage.ByDay:
				o.text("day", line.Day.String())
			case usage.ByConnection:
				o.text("connection", line.Connection)
			case usage.ByAction:
				o.text("action", line.Action)
			case usage.ByKey:
				o.text("key_id", line.KeyID)
			}
		}
		writeCounts(o, line.Counts)
	})
	return o.bytes()
}

// writeCounts writes every figure, zeros too: what is absent would read as what
// is not known.
func writeCounts(o *object, n usage.Counts) {
	for _, column := range usage.Columns() {
		o.number(column.String(), n[column])
	}
}
