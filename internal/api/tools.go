package api

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
)

// toolsHandler lists the actions that are offered as tools of their own: those
// of connections that say so, as far as the key may run them.
type toolsHandler struct {
	book       connectionBook
	connectors *connectorsHandler
}

// tool is one action of one connection.
type tool struct {
	connection connections.Connection
	action     connectors.ActionSpec
	// before is the place in the listing of connections that its one stands behind.
	before string
}

// atOnce is how many connections are read at a time, and atMost how many a page
// looks at: a page may be short, even empty, and still have a next one.
const (
	atOnce = 100
	atMost = 1000
)

func (h *toolsHandler) list(c *call) error {
	q := c.query("limit", "cursor")
	limit := q.limit()
	if err := q.err(); err != nil {
		return err
	}
	page, next, err := h.page(c, q.text("cursor"), limit)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodePage(len(page), next, func(i int, o *object) {
		o.text("connection", page[i].connection.Name)
		o.some("account", page[i].connection.Account)
		o.object("action", func(o *object) { h.connectors.writeAction(o, page[i].action.Name, page[i].action) })
	}))
}

func (h *toolsHandler) page(c *call, cursor string, limit int) (page []tool, next string, err error) {
	specs := make(map[string]connectors.Spec)
	for _, s := range h.connectors.catalog.Specs() {
		specs[s.Major()] = s
	}
	after := parseToolCursor(cursor)
	place := after.place
	for range atMost / atOnce {
		list, more, err := h.book.List(c.ctx(), c.who.Scope, place, atOnce)
		if err != nil {
			return nil, "", err
		}
		for _, conn := range list {
			for _, action := range after.rest(conn, specs[conn.Connector]) {
				if !c.who.MayDo(conn.Name, action.Name) {
					continue
				}
				if len(page) == limit {
					return page, page[limit-1].cursor(), nil
				}
				page = append(page, tool{connection: conn, action: action, before: place})
			}
			place = conn.Cursor()
		}
		if more == "" {
			return page, "", nil
		}
		place = more
	}
	return page, place, nil
}

// toolCursor is a place in the list of tools: in the listing of connections, and
// within the one that comes next if the page ended there.
type toolCursor struct{ place, connection, action string }

const cursorSeparator = "~" // stands in no cursor of connections and in no name

func (t tool) cursor() string {
	return strings.Join([]string{t.before, t.connection.ID, t.action.Name}, cursorSeparator)
}

// parseToolCursor leaves it to the listing of connections to refuse a place that is
// none. Whoever forges the rest leaves out tools of their own.
func parseToolCursor(cursor string) toolCursor {
	place, rest, _ := strings.Cut(cursor, cursorSeparator)
	connection, action, _ := strings.Cut(rest, cursorSeparator)
	return toolCursor{place: place, connection: connection, action: action}
}

// rest is what a connection offers that the page before did not have, in the order
// of the names.
func (at toolCursor) rest(conn connections.Connection, spec connectors.Spec) []connectors.ActionSpec {
	if !conn.MCPTools || conn.Closing {
		return nil
	}
	var list []connectors.ActionSpec
	for _, name := range slices.Sorted(maps.Keys(spec.Actions)) {
		if conn.ID == at.connection && name <= at.action {
			continue
		}
		action := spec.Actions[name]
		action.Name = name
		list = append(list, action)
	}
	return list
}
