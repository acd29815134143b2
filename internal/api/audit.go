package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/trail"
)

// auditor reads audit rows, and takes those of refusals.
type auditor interface {
	journal
	Query(ctx context.Context, scope ledger.Scope, f audit.Filter, p trail.Page) (rows []audit.Entry, next string, err error)
	Export(ctx context.Context, scope ledger.Scope, e trail.Export, out io.Writer) error
}

type auditHandler struct {
	log     auditor
	exports exports
}

func (h *auditHandler) list(c *call) error { return h.listFor(c, c.who.Scope) }

// listFor reads the rows of a scope. Parameters that the caller has read itself
// are named in also.
func (h *auditHandler) listFor(c *call, scope ledger.Scope, also ...string) error {
	all := &query{values: c.r.URL.Query()}
	format := c.format(all)
	if err := all.err(); err != nil {
		return err
	}
	if format != formatJSON {
		return h.export(c, scope, format, also)
	}
	q := c.query(slices.Concat(also, auditFilters(), []string{"order", "limit", "cursor", "format"})...)
	filter := q.auditFilter()
	page := trail.Page{Limit: q.limit(), Newest: q.newest(), Cursor: q.text("cursor")}
	if err := q.err(); err != nil {
		return err
	}
	rows, next, err := h.log.Query(c.ctx(), scope, filter, page)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodePage(len(rows), next, func(i int, o *object) {
		if rows[i].Unreadable {
			o.time("at", rows[i].At)
			o.flag("unreadable", true)
			return
		}
		o.members(rows[i].Encode())
	}))
}

// auditFilters names the parameters that select rows.
func auditFilters() []string {
	return []string{"event", "connection", "action", "action_id", "key_id", "identity", "outcome", labelPrefix + "*", "since", "until"}
}

func (q *query) auditFilter() audit.Filter {
	return audit.Filter{
		Event: q.event(), Connection: q.text("connection"), Action: q.text("action"),
		ActionID: q.text("action_id"), KeyID: q.text("key_id"),
		Identity: q.text("identity"), Outcome: q.text("outcome"), Meta: q.labels(),
		Since: q.time("since"), Until: q.time("until"),
	}
}

// labelPrefix stands before the name of a label in a parameter.
const labelPrefix = "meta."

// labels reads the agent's labels that a row must have. One without a name, or
// an empty one, is a label like any other.
func (q *query) labels() map[string]string {
	var labels map[string]string
	for parameter := range q.values {
		name, ok := strings.CutPrefix(parameter, labelPrefix)
		if !ok {
			continue
		}
		value := q.text(parameter)
		if len(name) > audit.MaxMetaBytes || len(value) > audit.MaxMetaBytes {
			q.refuse(parameter, fmt.Sprintf("a label has at most %d bytes, so nothing has this one", audit.MaxMetaBytes))
		}
		if labels == nil {
			labels = map[string]string{}
		}
		labels[name] = value
	}
	if len(labels) > audit.MaxMeta {
		q.refuse(labelPrefix+"*", fmt.Sprintf("a write has at most %d labels, so nothing has all of these", audit.MaxMeta))
	}
	return labels
}

func (q *query) event() audit.Event {
	e := audit.Event(q.text("event"))
	if e != "" && !e.Known() {
		q.refuse("event", "there is no such event")
	}
	return e
}

// newest reads the order, newest first if it is absent.
func (q *query) newest() bool {
	switch q.text("order") {
	case "", "newest":
		return true
	case "oldest":
		return false
	default:
		q.refuse("order", "this must be newest or oldest")
		return true
	}
}
