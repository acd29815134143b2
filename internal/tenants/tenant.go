package tenants

import (
	"regexp"
	"time"
	"unicode"
	"unicode/utf8"

	"holdfast.dev/gateway/internal/ledger"
)

// Ref names one life of a tenant, and where it lives.
type Ref struct {
	Tenant   string // the id its users know it by
	TenantID string // the incarnation: opaque, never used twice
	Scope    ledger.Scope
}

// Tenant is one customer of the gateway.
type Tenant struct {
	Ref
	Name   string // for people; may be empty
	Limits Limits
	// AuditRetention is how many days audit rows are kept; 0: the gateway's default.
	AuditRetention int64
	// Suspended: nothing new is sent for it; what exists is answered.
	Suspended bool
	// Closing: its deletion has begun. Nothing new is sent for it.
	Closing   bool
	CreatedAt time.Time
	UpdatedAt time.Time

	version ledger.Version
}

// Limits bound what a tenant may use. Zero means the gateway's default.
type Limits struct {
	RequestsPerSecond int64 `json:"requests_per_second,omitempty"` // of any kind
	WritesPerSecond   int64 `json:"writes_per_second,omitempty"`   // new writes
	ConcurrentCalls   int64 `json:"concurrent_calls,omitempty"`    // calls to vendors at once
	NewIdentities     int64 `json:"new_identities,omitempty"`      // distinct writes in a replay window
	MaxBody           int64 `json:"max_body,omitempty"`            // bytes of a request
}

// NewTenant is what a tenant is created from.
type NewTenant struct {
	ID     string // ^[a-z0-9][a-z0-9-]{0,62}$
	Name   string
	Limits Limits
	// AuditRetention: days, or 0 for the gateway's default.
	AuditRetention int64
}

// Patch is what may be changed of a tenant; nil members stay.
type Patch struct {
	Name      *string
	Suspended *bool // false also reopens a tenant whose deletion was begun
	Limits    *Limits
	// AuditRetention: days, or 0 for the gateway's default.
	AuditRetention *int64
}

var idForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// maxText bounds names and labels, in bytes.
const maxText = 200

func (n *NewTenant) check() error {
	var p problems
	if !idForm.MatchString(n.ID) {
		p.add("/id", "use 1 to 63 lower-case letters, digits and hyphens, a letter or digit first")
	}
	p.text("/name", n.Name)
	p.limits(n.Limits)
	p.retention(n.AuditRetention)
	return p.err()
}

func (c *Patch) check() error {
	var p problems
	if c.Name != nil {
		p.text("/name", *c.Name)
	}
	if c.Limits != nil {
		p.limits(*c.Limits)
	}
	if c.AuditRetention != nil {
		p.retention(*c.AuditRetention)
	}
	return p.err()
}

// text checks what people read: short, printable, valid UTF-8.
func (p *problems) text(pointer, s string) {
	switch {
	case len(s) > maxText:
		p.add(pointer, "use at most 200 bytes")
	case !utf8.ValidString(s):
		p.add(pointer, "use valid UTF-8")
	default:
		for _, r := range s {
			if !unicode.IsPrint(r) {
				p.add(pointer, "use printable characters only")
				return
			}
		}
	}
}

// maxRetention is ten years and a bit, in days.
const maxRetention = 4000

func (p *problems) retention(days int64) {
	if days < 0 || days > maxRetention {
		p.add("/audit_retention_days", "use 1 to 4000 days; 0 stands for the gateway's own")
	}
}

func (p *problems) limits(l Limits) {
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"requests_per_second", l.RequestsPerSecond}, {"writes_per_second", l.WritesPerSecond}, {"concurrent_calls", l.ConcurrentCalls},
		{"new_identities", l.NewIdentities}, {"max_body", l.MaxBody},
	} {
		if limit.value < 0 {
			p.add("/limits/"+limit.name, "use a whole number of at least 0; 0 stands for the gateway's own limit")
		}
	}
}
