package tenants

import (
	"slices"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// KeyScope is a right of an API key.
type KeyScope string

// The rights a key may have.
const (
	ScopeDo      KeyScope = "do"      // run writes, within the key's grants
	ScopeRead    KeyScope = "read"    // look at actions, connections, audit, usage
	ScopeResolve KeyScope = "resolve" // check and resolve held writes
	ScopeManage  KeyScope = "manage"  // administer keys and connections
)

func (s KeyScope) known() bool {
	return slices.Contains([]KeyScope{ScopeDo, ScopeRead, ScopeResolve, ScopeManage}, s)
}

// Grant narrows ScopeDo to a connection and, unless Actions is empty, to some of
// its actions.
type Grant struct {
	Connection string   `json:"connection"`
	Actions    []string `json:"actions,omitempty"`
}

// Principal is who made a request, as its key says. It may be copied and is not
// to be changed.
type Principal struct {
	Tenant   string // the tenant's id as its users know it; "" for the platform
	TenantID string // its incarnation: what identities and seals are bound to
	Scope    ledger.Scope
	KeyID    string // public id of the key; "" for the platform
	Scopes   []KeyScope
	Grants   []Grant // none: no narrowing
	// Platform is the host's admin key. It belongs to no tenant, has none of the
	// scopes above, and Scope is the platform's.
	Platform bool
	// AdminKey says which of the configured admin keys it was, counted from 1; 0
	// for a tenant's key.
	AdminKey int
	// Suspended: what exists is answered, nothing new is sent. It is true also
	// while the tenant is being deleted.
	Suspended bool
	Limits    Limits // the tenant's own; zero members: the gateway's

	guards []ledger.Expect
}

// Can says whether the key has a scope. The platform has none: it acts on
// tenants, not as one.
func (p Principal) Can(s KeyScope) bool {
	return !p.Platform && slices.Contains(p.Scopes, s)
}

// MayDo says whether the key may run an action of a connection.
func (p Principal) MayDo(connection, action string) bool {
	if !p.Can(ScopeDo) {
		return false
	}
	return len(p.Grants) == 0 || slices.ContainsFunc(p.Grants, func(g Grant) bool {
		return g.Connection == connection && (len(g.Actions) == 0 || slices.Contains(g.Actions, action))
	})
}

// Ref names the principal's tenant, in the life the key belongs to.
func (p Principal) Ref() Ref { return Ref{Tenant: p.Tenant, TenantID: p.TenantID, Scope: p.Scope} }

// TenantName is the id the tenant's users know it by, "" for the platform.
func (p Principal) TenantName() string { return p.Tenant }

// Actor is the principal as audit rows name it.
func (p Principal) Actor() audit.Actor {
	if p.Platform {
		return audit.Actor{Kind: audit.KindPlatform}
	}
	return audit.Actor{Kind: audit.KindKey, KeyID: p.KeyID}
}

// Guards are conditions for a step that takes a new write: the tenant and the
// key are as they were when the principal was authenticated. With them in the
// claim's step, a suspension, a deletion or a revocation holds from the moment
// it is stored, on every replica, whatever those replicas remember; and no write
// can slip in between a deletion's look for unsettled writes and the deletion.
// A step that fails on one is to be followed by [Directory.Forget] and a new
// authentication.
func (p Principal) Guards() []ledger.Expect { return slices.Clone(p.guards) }
