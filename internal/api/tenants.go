package api

import (
	"context"
	"net/http"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/tenants"
)

// directory keeps the tenants of the platform.
type directory interface {
	GetTenant(ctx context.Context, id string) (tenants.Tenant, error)
	ListTenants(ctx context.Context, cursor string, limit int) ([]tenants.Tenant, string, error)
	CreateTenant(ctx context.Context, caller audit.Caller, n tenants.NewTenant) (tenants.Tenant, error)
	UpdateTenant(ctx context.Context, caller audit.Caller, id string, patch tenants.Patch) (tenants.Tenant, error)
	DeleteTenant(ctx context.Context, caller audit.Caller, id string) error
	FindLife(ctx context.Context, id, incarnation string) (tenants.Ref, error)
}

type tenantsHandler struct {
	directory directory
	actions   *actionsHandler
	audit     *auditHandler
	usage     *usageHandler
	proof     *proofHandler
	maxBody   int64
}

func (h *tenantsHandler) create(c *call) error {
	raw, err := c.readJSON(h.maxBody)
	if err != nil {
		return err
	}
	var in struct {
		ID     string         `json:"id"`
		Name   string         `json:"name"`
		Limits tenants.Limits `json:"limits"`

		AuditRetention int64 `json:"audit_retention_days"`
	}
	if err := unmarshal(raw, &in); err != nil {
		return err
	}
	tenant, err := h.directory.CreateTenant(c.ctx(), c.caller(), tenants.NewTenant{
		ID: in.ID, Name: in.Name, Limits: in.Limits, AuditRetention: in.AuditRetention,
	})
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", "/v1/tenants/"+tenant.Tenant)
	return c.json(http.StatusCreated, encodeTenant(tenant))
}

func (h *tenantsHandler) list(c *call) error {
	q := c.query("limit", "cursor")
	limit := q.limit()
	if err := q.err(); err != nil {
		return err
	}
	list, next, err := h.directory.ListTenants(c.ctx(), q.text("cursor"), limit)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodePage(len(list), next, func(i int, o *object) { writeTenant(o, list[i]) }))
}

func (h *tenantsHandler) get(c *call) error {
	tenant, err := h.named(c)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodeTenant(tenant))
}

// named finds the tenant that the path names.
func (h *tenantsHandler) named(c *call) (tenants.Tenant, error) {
	id, err := c.param("tenant")
	if err != nil {
		return tenants.Tenant{}, err
	}
	return h.directory.GetTenant(c.ctx(), id)
}

func (h *tenantsHandler) update(c *call) error {
	id, err := c.param("tenant")
	if err != nil {
		return err
	}
	raw, err := c.readJSON(h.maxBody)
	if err != nil {
		return err
	}
	patch, err := decodePatch(raw)
	if err != nil {
		return err
	}
	tenant, err := h.directory.UpdateTenant(c.ctx(), c.caller(), id, patch)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodeTenant(tenant))
}

// decodePatch reads what is to change; what is absent stays.
func decodePatch(raw []byte) (tenants.Patch, error) {
	var in struct {
		Name      string         `json:"name"`
		Suspended bool           `json:"suspended"`
		Limits    tenants.Limits `json:"limits"`

		AuditRetention int64 `json:"audit_retention_days"`
	}
	if err := unmarshal(raw, &in); err != nil {
		return tenants.Patch{}, err
	}
	has := members(raw)
	var patch tenants.Patch
	if has["name"] {
		patch.Name = &in.Name
	}
	if has["suspended"] {
		patch.Suspended = &in.Suspended
	}
	if has["limits"] {
		patch.Limits = &in.Limits
	}
	if has["audit_retention_days"] {
		patch.AuditRetention = &in.AuditRetention
	}
	return patch, nil
}

func (h *tenantsHandler) remove(c *call) error {
	id, err := c.param("tenant")
	if err != nil {
		return err
	}
	if err := h.directory.DeleteTenant(c.ctx(), c.caller(), id); err != nil {
		return err
	}
	return c.nothing()
}

// paramLife chooses one life of a tenant whose id was used more than once.
const paramLife = "life"

// life finds the tenant that the path names for the host's look at it: the one
// there is or, once it is deleted, the last one there was.
func (h *tenantsHandler) life(c *call) (tenants.Ref, error) {
	id, err := c.param("tenant")
	if err != nil {
		return tenants.Ref{}, err
	}
	return h.directory.FindLife(c.ctx(), id, c.r.URL.Query().Get(paramLife))
}

// listActions is the host's look at one tenant's writes.
func (h *tenantsHandler) listActions(c *call) error {
	ref, err := h.life(c)
	if err != nil {
		return err
	}
	return h.actions.listFor(c, tenants.Principal{
		Tenant: ref.Tenant, TenantID: ref.TenantID, Scope: ref.Scope,
		Scopes: []tenants.KeyScope{tenants.ScopeRead},
	}, paramLife)
}

// listAudit is the host's look at one tenant's rows.
func (h *tenantsHandler) listAudit(c *call) error {
	ref, err := h.life(c)
	if err != nil {
		return err
	}
	return h.audit.listFor(c, ref.Scope, paramLife)
}

// verifyAudit is the host's proof of one tenant's log, deleted ones included.
func (h *tenantsHandler) verifyAudit(c *call) error {
	ref, err := h.life(c)
	if err != nil {
		return err
	}
	return h.proof.verifyFor(c, ref.Scope, paramLife)
}

// listCheckpoints is the host's look at one tenant's checkpoints.
func (h *tenantsHandler) listCheckpoints(c *call) error {
	ref, err := h.life(c)
	if err != nil {
		return err
	}
	return h.proof.checkpointsFor(c, ref.Scope, paramLife)
}

// showUsage is the host's look at what one tenant's rows add up to.
func (h *tenantsHandler) showUsage(c *call) error {
	ref, err := h.life(c)
	if err != nil {
		return err
	}
	return h.usage.showFor(c, ref.Scope, paramLife)
}

func encodeTenant(t tenants.Tenant) []byte {
	o := newObject(512)
	writeTenant(o, t)
	return o.bytes()
}

func writeTenant(o *object, t tenants.Tenant) {
	o.text("id", t.Tenant)
	o.some("name", t.Name)
	o.object("limits", func(o *object) {
		for _, limit := range []struct {
			name  string
			value int64
		}{
			{"requests_per_second", t.Limits.RequestsPerSecond}, {"writes_per_second", t.Limits.WritesPerSecond}, {"concurrent_calls", t.Limits.ConcurrentCalls},
			{"new_identities", t.Limits.NewIdentities}, {"max_body", t.Limits.MaxBody},
		} {
			if limit.value != 0 {
				o.number(limit.name, limit.value)
			}
		}
	})
	if t.AuditRetention != 0 {
		o.number("audit_retention_days", t.AuditRetention)
	}
	o.flag("suspended", t.Suspended)
	if t.Closing {
		o.flag("closing", true)
	}
	o.time("created_at", t.CreatedAt)
	o.time("updated_at", t.UpdatedAt)
}
