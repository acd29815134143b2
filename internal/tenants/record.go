package tenants

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/strictjson"
)

// Records are JSON with a version in front. They are read strictly: a member
// that this release does not know may restrict what it would otherwise allow
// (a new kind of grant), so such a record is unreadable and access is denied,
// rather than granted on half of its meaning.
const recordVersion = 1

// entry is the platform's: where the tenant of an id lives.
type entry struct {
	V           int       `json:"v"`
	Incarnation string    `json:"incarnation"`
	CreatedAt   time.Time `json:"created_at"`
}

// record is the tenant's own.
type record struct {
	V         int    `json:"v"`
	ID        string `json:"id"`
	Name      string `json:"name,omitempty"`
	Suspended bool   `json:"suspended,omitempty"`
	Closing   bool   `json:"closing,omitempty"`
	Limits    Limits `json:"limits"`
	// AuditRetention is in days.
	AuditRetention int64     `json:"audit_retention,omitempty"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	// Incarnation lets the tenant be found from its scope alone, which is all
	// an API key knows.
	Incarnation string `json:"incarnation"`
}

func encode(v any) []byte {
	// Records are structs of texts, numbers and times, which always encode.
	data, _ := json.Marshal(v)
	return data
}

func decode(what string, data []byte, version *int, into any) error {
	if err := strictjson.Unmarshal(data, into); err != nil || *version != recordVersion {
		return fmt.Errorf("read %s: %w", what, ledger.ErrCorrupt)
	}
	return nil
}

func decodeEntry(v ledger.Value) (entry, error) {
	var e entry
	err := decode("tenant entry", v.Data, &e.V, &e)
	return e, err
}

func decodeRecord(v ledger.Value) (Tenant, error) {
	var r record
	if err := decode("tenant", v.Data, &r.V, &r); err != nil {
		return Tenant{}, err
	}
	return Tenant{
		Ref:  refOf(r.ID, r.Incarnation),
		Name: r.Name, Limits: r.Limits, Suspended: r.Suspended, Closing: r.Closing, AuditRetention: r.AuditRetention,
		CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, version: v.Version,
	}, nil
}

func (t *Tenant) encode() []byte {
	return encode(record{
		V: recordVersion, ID: t.Tenant, Incarnation: t.TenantID,
		Name: t.Name, Limits: t.Limits, Suspended: t.Suspended, Closing: t.Closing, AuditRetention: t.AuditRetention,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
	})
}

func refOf(id, incarnation string) Ref {
	return Ref{Tenant: id, TenantID: incarnation, Scope: ledger.ScopeOf(incarnation)}
}

func newIncarnation() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// tenantKey is where a scope keeps its tenant.
func tenantKey() ledger.Key { return ledger.Key{Kind: ledger.Tenant} }

// entryKey is where the platform's scope keeps the entry of an id.
func entryKey(id string) ledger.Key { return ledger.Key{Kind: ledger.Tenant, ID: id} }
