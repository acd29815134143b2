package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/loss"
)

// writer is the one path of a write.
type writer interface {
	Do(ctx context.Context, req actions.Request) (actions.Reply, error)
}

type doHandler struct {
	writes  writer
	maxBody int64
	gap     func() *loss.Gap
}

func (h *doHandler) do(c *call) error {
	raw, err := c.readJSON(h.maxBody)
	if err != nil {
		return err
	}
	req, err := decodeDo(raw, c.r.Header)
	if err != nil {
		return err
	}
	req.Principal, req.RequestID, req.Front = c.who, c.id, c.front
	c.gap = h.gap()
	reply, err := h.writes.Do(c.ctx(), req)
	if err != nil {
		return err
	}
	c.about(reply.Record)
	if req.DryRun {
		return c.json(http.StatusOK, encodeDryRun(req, reply, c.gap, c.id))
	}
	if reply.Replayed {
		c.w.Header().Set(headerIdempotentReplayed, boolText(true))
	}
	return c.json(http.StatusOK, encodeReply(reply, c.gap, c.id))
}

// doRequest is the body of a `do`.
type doRequest struct {
	Connection     string            `json:"connection"`
	Action         string            `json:"action"`
	Body           json.RawMessage   `json:"body"`
	IdempotencyKey string            `json:"idempotency_key"`
	RetryRefused   bool              `json:"retry_refused"`
	AllowDuplicate bool              `json:"allow_duplicate"`
	DryRun         bool              `json:"dry_run"`
	Meta           map[string]string `json:"meta"`
}

// decodeDo reads a `do`: everything of it that does not depend on who asks.
func decodeDo(raw []byte, h http.Header) (actions.Request, error) {
	var in doRequest
	if err := unmarshal(raw, &in); err != nil {
		return actions.Request{}, err
	}
	if bad := in.problems(raw); len(bad) > 0 {
		return actions.Request{}, refuse(actions.InvalidRequest, "", bad...)
	}
	if in.Body != nil && in.Body[0] != '{' {
		return actions.Request{}, refuse(actions.InvalidBody, "", field{
			pointer: bodyPointer, detail: "the body must be an object; leave it out to send {}"})
	}
	key, err := ownKey(h.Values(headerIdempotencyKey), in.IdempotencyKey, in.IdempotencyKey != "" || has(raw, "idempotency_key"))
	if err != nil {
		return actions.Request{}, err
	}
	return actions.Request{
		Connection: in.Connection, Action: in.Action, Body: in.Body, Key: key,
		RetryRefused: in.RetryRefused, AllowDuplicate: in.AllowDuplicate, DryRun: in.DryRun,
		Meta: in.Meta, Wait: preferWait(h.Values("Prefer")),
	}, nil
}

func (in *doRequest) problems(raw []byte) []field {
	var bad []field
	for _, m := range []struct{ name, value string }{{"connection", in.Connection}, {"action", in.Action}} {
		switch {
		case m.value != "":
		case !has(raw, m.name):
			bad = append(bad, field{pointer: "/" + m.name, detail: "this member is missing"})
		default:
			bad = append(bad, field{pointer: "/" + m.name, detail: "this must not be empty"})
		}
	}
	return append(bad, metaProblems(in.Meta)...)
}

// metaProblems keeps the agent's labels within what an audit row holds.
func metaProblems(meta map[string]string) []field {
	if len(meta) > audit.MaxMeta {
		return []field{{pointer: "/meta", detail: fmt.Sprintf("there may be at most %d labels", audit.MaxMeta)}}
	}
	for name, value := range meta {
		if len(name) > audit.MaxMetaBytes || len(value) > audit.MaxMetaBytes {
			return []field{{pointer: "/meta", detail: fmt.Sprintf("names and values of labels may have at most %d bytes", audit.MaxMetaBytes)}}
		}
	}
	return nil
}

// ownKey is the agent's own key, "" to derive one. It may come as a header, as
// a member, or as both if they agree.
func ownKey(header []string, member string, hasMember bool) (string, error) {
	key, err := identity.ParseKeyHeader(header)
	if err != nil {
		return "", refuseKey("Idempotency-Key header", err)
	}
	if !hasMember {
		return key, nil
	}
	if err := identity.CheckKey(member); err != nil {
		return "", refuseKey("member idempotency_key", err, field{pointer: "/idempotency_key"})
	}
	if key != "" && key != member {
		return "", refuse(actions.InvalidKey, "The Idempotency-Key header and the member idempotency_key differ, so nothing was sent. Send one of them.")
	}
	return member, nil
}

func refuseKey(where string, err error, at ...field) error {
	reason := "it is not a key"
	var bad *identity.KeyError
	if errors.As(err, &bad) {
		reason = bad.Reason
	}
	for i := range at {
		at[i].detail = reason
	}
	return refuse(actions.InvalidKey, "The "+where+" is not acceptable, so nothing was sent: "+reason+".", at...).because(err)
}
