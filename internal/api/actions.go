package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/tenants"
)

// reader looks at actions.
type reader interface {
	Get(ctx context.Context, p tenants.Principal, id string) (actions.View, error)
	List(ctx context.Context, p tenants.Principal, f actions.ListFilter, cursor string, limit int) ([]actions.View, string, error)
}

// settler ends the doubt about a held write.
type settler interface {
	Check(ctx context.Context, p tenants.Principal, id, requestID, front string) (actions.CheckResult, error)
	Resolve(ctx context.Context, p tenants.Principal, id string, r actions.Resolution, requestID string) (actions.View, error)
}

type actionsHandler struct {
	reads   reader
	settles settler
	maxBody int64
}

func (h *actionsHandler) get(c *call) error {
	id, err := c.param("id")
	if err != nil {
		return err
	}
	view, err := h.reads.Get(c.ctx(), c.who, id)
	if err != nil {
		return err
	}
	c.action = view.Record.ID.String()
	return c.json(http.StatusOK, encodeView(view))
}

func (h *actionsHandler) list(c *call) error { return h.listFor(c, c.who) }

// listFor lists the actions that p may see. The results stay out of a list: a
// page of them could be hundreds of megabytes. GET of one action has it.
// Parameters that the caller has read itself are named in also.
func (h *actionsHandler) listFor(c *call, p tenants.Principal, also ...string) error {
	q := c.query(append(also, "state", "connection", "action", "since", "until", "limit", "cursor")...)
	filter := actions.ListFilter{
		State: q.state(), Connection: q.text("connection"), Action: q.text("action"),
		Since: q.time("since"), Until: q.time("until"),
	}
	limit := q.limit()
	if err := q.err(); err != nil {
		return err
	}
	views, next, err := h.reads.List(c.ctx(), p, filter, q.text("cursor"), limit)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodePage(len(views), next, func(i int, o *object) {
		if views[i].Lost != "" {
			// Whatever it is, it is shown: nobody may think that it is not there.
			o.text("id", views[i].Lost)
			o.flag("unreadable", true)
			o.time("created_at", views[i].LostAt)
			return
		}
		views[i].Answer = nil
		writeView(o, views[i])
	}))
}

// states are what a write may be found in, in the order of its life.
func states() []string {
	return []string{"in_flight", "succeeded", "refused", "held", "not_done", "lapsed"}
}

func (q *query) state() string {
	s := q.text("state")
	if s != "" && !slices.Contains(states(), s) {
		q.refuse("state", fmt.Sprintf("this must be one of %v", states()))
	}
	return s
}

func (h *actionsHandler) check(c *call) error {
	id, err := c.param("id")
	if err != nil {
		return err
	}
	result, err := h.settles.Check(c.ctx(), c.who, id, c.id, c.front)
	if err != nil {
		return err
	}
	c.action = id
	return c.json(http.StatusOK, encodeCheckResult(result, c.id))
}

// resolution is the body of a resolve.
type resolution struct {
	Outcome string          `json:"outcome"`
	Result  json.RawMessage `json:"result"`
	Note    string          `json:"note"`
}

// maxNote is the longest note of an operator in bytes.
const maxNote = 1024

func (h *actionsHandler) resolve(c *call) error {
	id, err := c.param("id")
	if err != nil {
		return err
	}
	raw, err := c.readJSON(h.maxBody)
	if err != nil {
		return err
	}
	r, err := decodeResolution(raw)
	if err != nil {
		return err
	}
	view, err := h.settles.Resolve(c.ctx(), c.who, id, r, c.id)
	if err != nil {
		return err
	}
	c.action = view.Record.ID.String()
	return c.json(http.StatusOK, encodeView(view))
}

func decodeResolution(raw []byte) (actions.Resolution, error) {
	var in resolution
	if err := unmarshal(raw, &in); err != nil {
		return actions.Resolution{}, err
	}
	has := members(raw)
	var bad []field
	switch {
	case !has["outcome"]:
		bad = append(bad, field{pointer: "/outcome", detail: "this member is missing"})
	case in.Outcome != "succeeded" && in.Outcome != "not_performed":
		bad = append(bad, field{pointer: "/outcome", detail: "this must be succeeded or not_performed"})
	case in.Outcome == "not_performed" && has["result"]:
		bad = append(bad, field{pointer: "/result", detail: "a write that was not performed has no result; leave it out"})
	}
	if len(in.Note) > maxNote {
		bad = append(bad, field{pointer: "/note", detail: fmt.Sprintf("this may have at most %d bytes", maxNote)})
	}
	if len(bad) > 0 {
		return actions.Resolution{}, refuse(actions.InvalidRequest, "", bad...)
	}
	return actions.Resolution{Succeeded: in.Outcome == "succeeded", Result: in.Result, Note: in.Note}, nil
}
