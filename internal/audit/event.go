package audit

import "slices"

// Event says what happened, in the words of the public contract.
type Event string

// Events of a write's life: each answer to `do` and each change of a write is
// one of them.
const (
	Claimed     Event = "claimed"      // a new action owns the identity; the vendor may be called
	Succeeded   Event = "succeeded"    // the vendor, a check or an operator says it was done
	Refused     Event = "refused"      // the vendor answered: definitely not done
	Held        Event = "held"         // the outcome is unknown
	NotSent     Event = "not_sent"     // proven that no byte left; the claim was released
	Released    Event = "released"     // answered "not done, try later"; the claim was released
	Replayed    Event = "replayed"     // a repeat got the stored answer
	InFlight    Event = "in_flight"    // a repeat met the running write
	KeyReused   Event = "key_reused"   // an own key came with another request
	TwinRefused Event = "twin_refused" // the same write under another key is unsettled
	Recovered   Event = "recovered"    // a resend settled a write whose owner was lost
	LeaseLost   Event = "lease_lost"   // the owner went silent; the write is held
	LateAnswer  Event = "late_answer"  // an answer came after the write was held or settled, and settled nothing
	HeldRepeat  Event = "held_repeat"  // a repeat met the held write
	Lapsed      Event = "lapsed"       // a held write's time ran out
	NotDone     Event = "not_done"     // a check or an operator says it was not done
	Checked     Event = "checked"      // a check of a held write ran
	Resolved    Event = "resolved"     // an operator settled a held write
	Denied      Event = "denied"       // an authenticated caller was refused
	RateLimited Event = "rate_limited" // a limit of the gateway's refused the call
)

// Events of administration.
const (
	// TenantReserved: the platform's directory took the name. The tenant exists
	// from TenantCreated on, which stands in its own log.
	TenantReserved  Event = "tenant.reserved"
	TenantCreated   Event = "tenant.created"
	TenantUpdated   Event = "tenant.updated"
	TenantSuspended Event = "tenant.suspended"
	TenantResumed   Event = "tenant.resumed"
	// TenantClosing: deletion has begun and new writes have ended.
	TenantClosing  Event = "tenant.closing"
	TenantReopened Event = "tenant.reopened" // deletion was given up
	TenantDeleted  Event = "tenant.deleted"
	// TenantPurged: some keys, connections or writes of a deleted tenant were removed.
	TenantPurged Event = "tenant.purged"
	// TenantErased: nothing is left of a deleted tenant but its audit.
	TenantErased Event = "tenant.erased"

	KeyCreated Event = "key.created"
	KeyRevoked Event = "key.revoked"

	ConnectionCreated Event = "connection.created"
	ConnectionUpdated Event = "connection.updated"
	// ConnectionClosing: deletion has begun and new writes have ended.
	ConnectionClosing  Event = "connection.closing"
	ConnectionReopened Event = "connection.reopened" // deletion was given up
	ConnectionDeleted  Event = "connection.deleted"
	ConnectionTested   Event = "connection.tested" // its outcome is the verdict

	ConnectorRegistered Event = "connector.registered"
	ConnectorDeleted    Event = "connector.deleted"

	StoreInitialized  Event = "store.initialized"
	StoreLossAccepted Event = "store.loss_accepted"
)

// Events lists every event, in the order of the contract.
func Events() []Event {
	return []Event{
		Claimed, Succeeded, Refused, Held, NotSent, Released, Replayed, InFlight, KeyReused, TwinRefused,
		Recovered, LeaseLost, LateAnswer, HeldRepeat, Lapsed, NotDone, Checked, Resolved, Denied, RateLimited,
		TenantReserved, TenantCreated, TenantUpdated, TenantSuspended, TenantResumed,
		TenantClosing, TenantReopened, TenantDeleted, TenantPurged, TenantErased,
		KeyCreated, KeyRevoked,
		ConnectionCreated, ConnectionUpdated, ConnectionClosing, ConnectionReopened, ConnectionDeleted, ConnectionTested,
		ConnectorRegistered, ConnectorDeleted,
		StoreInitialized, StoreLossAccepted,
	}
}

// Known says whether this release knows the event. A log may hold others,
// written by a newer one.
func (e Event) Known() bool { return slices.Contains(Events(), e) }
