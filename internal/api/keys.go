package api

import (
	"context"
	"net/http"
	"time"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/tenants"
)

// keyring keeps the API keys of tenants.
type keyring interface {
	CreateKey(ctx context.Context, caller audit.Caller, ref tenants.Ref, n tenants.NewKey) (text string, key tenants.APIKey, err error)
	ListKeys(ctx context.Context, ref tenants.Ref, cursor string, limit int) ([]tenants.APIKey, string, error)
	RevokeKey(ctx context.Context, caller audit.Caller, ref tenants.Ref, id string) error
}

type keysHandler struct {
	keys    keyring
	tenants *tenantsHandler
	maxBody int64
}

// ref is the tenant whose keys are meant. A tenant's key has no other tenant,
// so any other is not found, whether it exists or not.
func (h *keysHandler) ref(c *call) (tenants.Ref, error) {
	if c.who.Platform {
		tenant, err := h.tenants.named(c)
		return tenant.Ref, err
	}
	id, err := c.param("tenant")
	if err != nil {
		return tenants.Ref{}, err
	}
	if id != c.who.Tenant {
		return tenants.Ref{}, tenants.ErrNotFound
	}
	return c.who.Ref(), nil
}

// keyRequest is the body of a POST.
type keyRequest struct {
	Label     string             `json:"label"`
	Scopes    []tenants.KeyScope `json:"scopes"`
	Grants    []tenants.Grant    `json:"grants"`
	ExpiresAt string             `json:"expires_at"`
}

// create is the only answer that holds a key.
func (h *keysHandler) create(c *call) error {
	ref, err := h.ref(c)
	if err != nil {
		return err
	}
	raw, err := c.readJSON(h.maxBody)
	if err != nil {
		return err
	}
	n, err := decodeKey(raw)
	if err != nil {
		return err
	}
	text, key, err := h.keys.CreateKey(c.ctx(), c.caller(), ref, n)
	if err != nil {
		return err
	}
	o := newObject(512)
	writeKey(o, key)
	o.text("key", text)
	return c.json(http.StatusCreated, o.bytes())
}

func decodeKey(raw []byte) (tenants.NewKey, error) {
	var in keyRequest
	if err := unmarshal(raw, &in); err != nil {
		return tenants.NewKey{}, err
	}
	n := tenants.NewKey{Label: in.Label, Scopes: in.Scopes, Grants: in.Grants}
	if members(raw)["expires_at"] {
		var err error
		if n.ExpiresAt, err = time.Parse(time.RFC3339, in.ExpiresAt); err != nil {
			return tenants.NewKey{}, refuse(actions.InvalidRequest, "", field{
				pointer: "/expires_at", detail: "this must be a time in RFC 3339, such as 2026-01-31T08:00:00Z"})
		}
	}
	return n, nil
}

func (h *keysHandler) list(c *call) error {
	ref, err := h.ref(c)
	if err != nil {
		return err
	}
	q := c.query("limit", "cursor")
	limit := q.limit()
	if err := q.err(); err != nil {
		return err
	}
	list, next, err := h.keys.ListKeys(c.ctx(), ref, q.text("cursor"), limit)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodePage(len(list), next, func(i int, o *object) { writeKey(o, list[i]) }))
}

func (h *keysHandler) revoke(c *call) error {
	ref, err := h.ref(c)
	if err != nil {
		return err
	}
	id, err := c.param("id")
	if err != nil {
		return err
	}
	if err := h.keys.RevokeKey(c.ctx(), c.caller(), ref, id); err != nil {
		return err
	}
	return c.nothing()
}

func writeKey(o *object, k tenants.APIKey) {
	o.text("id", k.ID)
	o.some("label", k.Label)
	scopes := make([]string, 0, len(k.Scopes))
	for _, s := range k.Scopes {
		scopes = append(scopes, string(s))
	}
	o.texts("scopes", scopes)
	if len(k.Grants) > 0 {
		o.list("grants", len(k.Grants), func(i int, o *object) {
			o.text("connection", k.Grants[i].Connection)
			if len(k.Grants[i].Actions) > 0 {
				o.texts("actions", k.Grants[i].Actions)
			}
		})
	}
	o.time("expires_at", k.ExpiresAt)
	o.time("created_at", k.CreatedAt)
	o.time("last_used_at", k.LastUsedAt)
	o.object("created_by", func(o *object) {
		o.text("kind", k.CreatedBy.Kind)
		o.some("key_id", k.CreatedBy.KeyID)
	})
}
