package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connectors"
)

// catalog lists the connectors that are loaded, the newest version of each major.
type catalog interface {
	Specs() []connectors.Spec
}

// registrar registers and removes versions for all replicas.
type registrar interface {
	Register(ctx context.Context, caller audit.Caller, name, version string, manifest []byte) (spec connectors.Spec, created bool, err error)
	Unregister(ctx context.Context, caller audit.Caller, name, version string) error
}

type connectorsHandler struct {
	catalog   catalog
	registrar registrar
	window    time.Duration // of an action that names none
}

func (h *connectorsHandler) list(c *call) error {
	if err := c.query().err(); err != nil {
		return err
	}
	specs := h.catalog.Specs()
	return c.json(http.StatusOK, encodePage(len(specs), "", func(i int, o *object) { h.write(o, specs[i]) }))
}

// get shows one connector: name@major, or by its name alone the newest major.
func (h *connectorsHandler) get(c *call) error {
	name, err := c.param("name")
	if err != nil {
		return err
	}
	best, newest := connectors.Spec{}, -1
	for _, s := range h.catalog.Specs() {
		_, major, _ := connectors.MajorOf(s.Major())
		if s.Major() == name || s.Name == name && major > newest {
			best, newest = s, major
		}
	}
	if newest < 0 {
		return refuse(actions.NotFound, "There is no connector of that name. GET /v1/connectors lists those there are.")
	}
	o := newObject(4096)
	h.write(o, best)
	return c.json(http.StatusOK, o.bytes())
}

// put registers a manifest. It says what the connector is, as get does.
func (h *connectorsHandler) put(c *call) error {
	name, version, err := nameAndVersion(c)
	if err != nil {
		return err
	}
	manifest, err := c.readYAML(connectors.MaxManifest)
	if err != nil {
		return err
	}
	spec, created, err := h.registrar.Register(c.ctx(), c.caller(), name, version, manifest)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	o := newObject(4096)
	h.write(o, spec)
	return c.json(status, o.bytes())
}

func (h *connectorsHandler) remove(c *call) error {
	name, version, err := nameAndVersion(c)
	if err != nil {
		return err
	}
	if err := h.registrar.Unregister(c.ctx(), c.caller(), name, version); err != nil {
		return err
	}
	return c.nothing()
}

func nameAndVersion(c *call) (name, version string, err error) {
	if name, err = c.param("name"); err != nil {
		return "", "", err
	}
	version, err = c.param("version")
	return name, version, err
}

func (h *connectorsHandler) write(o *object, s connectors.Spec) {
	o.text("connector", s.Major())
	o.text("name", s.Name)
	o.text("version", s.Version)
	o.some("docs", s.Docs)
	o.some("vendor_api", s.VendorAPI)
	o.object("auth", func(o *object) {
		o.text("type", string(s.Auth.Type))
		o.texts("credentials", s.Auth.Credentials())
	})
	o.raw("config", s.Config.JSON())
	o.object("base_url", func(o *object) {
		o.some("default", s.BaseURL.Default)
		o.texts("allow", s.BaseURL.Allow)
	})
	names := slices.Sorted(maps.Keys(s.Actions))
	o.list("actions", len(names), func(i int, o *object) { h.writeAction(o, names[i], s.Actions[names[i]]) })
}

func (h *connectorsHandler) writeAction(o *object, name string, a connectors.ActionSpec) {
	o.text("name", name)
	o.some("description", a.Description)
	o.text("effect", a.Effect)
	o.raw("input", a.Input.JSON())
	timeout, window := a.Timeout, a.Window
	if timeout == 0 {
		timeout = connectors.DefaultTimeout
	}
	if window == 0 {
		window = h.window
	}
	o.text("timeout", formatDuration(timeout))
	o.object("replay", func(o *object) {
		o.text("window", formatDuration(window))
		o.texts("ignore", a.Ignore)
		if k := a.Idempotency; k != nil {
			o.object("vendor_key", func(o *object) { writeVendorKey(o, *k) })
		}
		o.list("check", len(a.Checks), func(i int, o *object) { writeCheckRule(o, a.Checks[i]) })
	})
	o.texts("expose_headers", a.ExposeHeaders)
}

func writeVendorKey(o *object, k connectors.Idempotency) {
	o.text("in", k.In)
	o.text("name", k.Name)
	o.text("strength", map[bool]string{true: "documented", false: "weak"}[k.Documented])
	if k.Retention > 0 {
		o.text("retention", formatDuration(k.Retention))
	}
}

func writeCheckRule(o *object, r connectors.CheckRule) {
	o.text("how", string(r.Kind))
	if r.Within > 0 {
		o.text("within", formatDuration(r.Within))
	}
	if r.Kind == connectors.Lookup {
		o.text("settle", formatDuration(r.Settle))
		o.some("match", r.Match)
		o.text("absent", string(r.Absent))
	}
}
