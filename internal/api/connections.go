package api

import (
	"context"
	"encoding/json"
	"net/http"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// unsettled says whether a connection has writes in flight or held.
type unsettled func(ctx context.Context, scope ledger.Scope, connectionID string) (bool, error)

// connectionBook keeps a tenant's connections.
type connectionBook interface {
	Get(ctx context.Context, scope ledger.Scope, name string) (connections.Connection, error)
	List(ctx context.Context, scope ledger.Scope, cursor string, limit int) ([]connections.Connection, string, error)
	Kept(ctx context.Context, conn connections.Connection) ([]connections.Kept, error)
	Put(ctx context.Context, caller audit.Caller, scope ledger.Scope, name string, spec connections.Spec) (connections.Connection, bool, error)
	Delete(ctx context.Context, caller audit.Caller, scope ledger.Scope, name string,
		unsettled func(ctx context.Context, scope ledger.Scope, connectionID string) (bool, error)) error
}

// tester finds out whether a connection works.
type tester interface {
	TestConnection(ctx context.Context, p tenants.Principal, name, requestID, front string) (actions.TestResult, error)
}

type connectionsHandler struct {
	tests     tester
	book      connectionBook
	unsettled unsettled
	maxBody   int64
}

func (h *connectionsHandler) get(c *call) error {
	name, err := c.param("name")
	if err != nil {
		return err
	}
	conn, err := h.book.Get(c.ctx(), c.who.Scope, name)
	if err != nil {
		return err
	}
	kept, err := h.book.Kept(c.ctx(), conn)
	if err != nil {
		return err
	}
	o := newObject(512 + len(conn.Config))
	writeConnection(o, conn)
	if len(kept) > 0 {
		o.list("kept_credentials", len(kept), func(i int, o *object) {
			o.number("version", kept[i].Version)
			o.texts("names", kept[i].Names)
			o.some("fingerprint", kept[i].Fingerprint)
			o.time("set_at", kept[i].At)
		})
	}
	return c.json(http.StatusOK, o.bytes())
}

func (h *connectionsHandler) list(c *call) error {
	q := c.query("limit", "cursor")
	limit := q.limit()
	if err := q.err(); err != nil {
		return err
	}
	list, next, err := h.book.List(c.ctx(), c.who.Scope, q.text("cursor"), limit)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodePage(len(list), next, func(i int, o *object) { writeConnection(o, list[i]) }))
}

func (h *connectionsHandler) put(c *call) error {
	name, err := c.param("name")
	if err != nil {
		return err
	}
	raw, err := c.readJSON(h.maxBody)
	if err != nil {
		return err
	}
	spec, err := decodeConnection(raw)
	if err != nil {
		return err
	}
	conn, created, err := h.book.Put(c.ctx(), c.caller(), c.who.Scope, name, spec)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return c.json(status, encodeConnection(conn))
}

func (h *connectionsHandler) remove(c *call) error {
	name, err := c.param("name")
	if err != nil {
		return err
	}
	if err := h.book.Delete(c.ctx(), c.caller(), c.who.Scope, name, h.unsettled); err != nil {
		return err
	}
	return c.nothing()
}

func (h *connectionsHandler) test(c *call) error {
	name, err := c.param("name")
	if err != nil {
		return err
	}
	result, err := h.tests.TestConnection(c.ctx(), c.who, name, c.id, c.front)
	if err != nil {
		return err
	}
	o := newObject(512)
	o.text("connection", result.Connection)
	o.text("verdict", result.Verdict)
	o.text("detail", result.Detail)
	if result.Status > 0 {
		o.object("vendor", func(o *object) { o.number("status", int64(result.Status)) })
	}
	if result.Duration > 0 {
		o.number("duration_ms", result.Duration.Milliseconds())
	}
	o.text("request_id", c.id)
	return c.json(http.StatusOK, o.bytes())
}

// connectionRequest is the body of a PUT. Its credentials go nowhere but into
// the book, which seals them.
type connectionRequest struct {
	Connector   string            `json:"connector"`
	Config      json.RawMessage   `json:"config"`
	BaseURL     string            `json:"base_url"`
	Credentials map[string]string `json:"credentials"`
	Version     int64             `json:"credential_version"`
	Account     string            `json:"account"`
	Paused      bool              `json:"paused"`
	AutoResend  bool              `json:"auto_resend"`
	MCPTools    bool              `json:"mcp_tools"`
	SendTrace   bool              `json:"send_trace"`
	Correlation bool              `json:"correlation"`
}

func decodeConnection(raw []byte) (connections.Spec, error) {
	var in connectionRequest
	if err := unmarshal(raw, &in); err != nil {
		return connections.Spec{}, err
	}
	has := members(raw)
	spec := connections.Spec{Connector: in.Connector, Config: in.Config, BaseURL: in.BaseURL, Credentials: in.Credentials}
	if has["credential_version"] {
		if spec.CredentialVersion = in.Version; in.Version == 0 {
			return spec, refuse(actions.InvalidRequest, "", field{pointer: "/credential_version", detail: "this must be the number of a version, from 1"})
		}
	}
	if has["account"] {
		spec.Account = &in.Account
	}
	if has["paused"] {
		spec.Paused = &in.Paused
	}
	if has["auto_resend"] {
		spec.AutoResend = &in.AutoResend
	}
	if has["mcp_tools"] {
		spec.MCPTools = &in.MCPTools
	}
	if has["send_trace"] {
		spec.SendTrace = &in.SendTrace
	}
	if has["correlation"] {
		spec.Correlation = &in.Correlation
	}
	return spec, nil
}

func encodeConnection(c connections.Connection) []byte {
	o := newObject(512 + len(c.Config))
	writeConnection(o, c)
	return o.bytes()
}

// writeConnection shows of the credentials which there are and a fingerprint,
// and there is nothing more in c that it could show.
func writeConnection(o *object, c connections.Connection) {
	o.text("name", c.Name)
	o.text("id", c.ID)
	o.some("account", c.Account)
	o.text("connector", c.Connector)
	o.raw("config", orJSON(c.Config, "{}"))
	o.some("base_url", c.BaseURL)
	o.flag("paused", c.Paused)
	if c.Closing {
		o.flag("closing", true)
	}
	o.flag("auto_resend", c.AutoResend)
	o.flag("mcp_tools", c.MCPTools)
	o.flag("send_trace", c.SendTrace)
	o.flag("correlation", !c.Uncorrelated)
	if c.Uncorrelated {
		o.text("notice", "Writes on this connection leave nothing at the vendor that names them: a held one cannot be found by its marker, only by a key or id of its own where the vendor has that, or else by a person.")
	}
	o.object("credentials", func(o *object) {
		o.texts("names", c.CredentialNames)
		o.some("fingerprint", c.Fingerprint)
		if c.CredentialVersion > 0 {
			o.number("version", c.CredentialVersion)
		}
		o.time("set_at", c.CredentialsAt)
	})
	o.time("created_at", c.CreatedAt)
	o.time("updated_at", c.UpdatedAt)
}

func orJSON(raw []byte, otherwise string) []byte {
	if len(raw) == 0 {
		return []byte(otherwise)
	}
	return raw
}
