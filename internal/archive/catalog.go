package archive

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/strictjson"
)

const recordVersion = 1

// Head is how far a scope is sealed. It changes only in the step that records a
// segment or lets some go.
type Head struct {
	V      int    `json:"v"`
	Tenant string `json:"tenant,omitempty"` // as its users know it; "" for the platform
	Number uint64 `json:"number"`           // of the last segment; 0: none yet
	Seq    uint64 `json:"seq"`              // number of the last sealed row
	Hash   Hash   `json:"hash"`             // and its hash
	Cursor string `json:"cursor,omitempty"` // and its place in the store
	// Kept is the first segment that is still in the archive; Number+1 if none is.
	Kept Kept `json:"kept"`
	// Final: the last segment is the end of a deleted tenant's log.
	Final bool `json:"final,omitempty"`
	// Retention is what the tenant's setting was when a segment was last recorded,
	// for when the tenant is gone; 0: the default.
	Retention time.Duration `json:"retention,omitempty"`

	version ledger.Version
}

// Kept says where what is kept of a log begins.
type Kept struct {
	Number uint64 `json:"number"` // the first segment
	Seq    uint64 `json:"seq"`    // its first row
	Prev   Hash   `json:"prev"`   // the hash before that row
}

func headKey() ledger.Key { return ledger.Key{Kind: ledger.Sealing, ID: "head"} }

func entryKey(number uint64) ledger.Key {
	return ledger.Key{Kind: ledger.Sealing, ID: string(binary.BigEndian.AppendUint64([]byte{'n'}, number))}
}

func newHead(scope ledger.Scope, tenant string) Head {
	g := Genesis(scope, tenant)
	return Head{V: recordVersion, Tenant: tenant, Hash: g, Kept: Kept{Number: 1, Seq: 1, Prev: g}}
}

// headOf reads the head out of a snapshot; ok is false if nothing was sealed yet.
func headOf(snap ledger.Snapshot) (h Head, ok bool, err error) {
	v, ok := snap.Get(headKey())
	if !ok {
		return Head{}, false, nil
	}
	if err := decode("audit head", v.Data, &h.V, &h); err != nil {
		return Head{}, false, err
	}
	h.version = v.Version
	return h, true, nil
}

// Entry is one segment in the catalog.
type Entry struct {
	V         int       `json:"v"`
	Number    uint64    `json:"number"`
	First     uint64    `json:"first"` // number of its first row
	Last      uint64    `json:"last"`  // and of its last; First-1 in a final segment without rows
	From      time.Time `json:"from"`  // the store's time of its first row
	To        time.Time `json:"to"`    // and of its last
	Cursor    string    `json:"cursor"`
	Head      Hash      `json:"head"`
	At        time.Time `json:"at"` // when it was signed
	Final     bool      `json:"final,omitempty"`
	KeyID     string    `json:"key_id"`
	Signature []byte    `json:"signature"`

	Object Object `json:"object"`         // the segment
	Terms  Object `json:"terms,omitzero"` // the filter over its terms
	Size   int64  `json:"size"`           // bytes of the segment, unpacked
}

// Object is an object of the archive that must be, byte for byte, what was put.
type Object struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Sum  Hash   `json:"sum"` // SHA-256
}

// Rows is how many rows the segment has.
func (e *Entry) Rows() int { return int(e.Last + 1 - e.First) }

// Checkpoint is the line that closes the segment.
func (e *Entry) Checkpoint(scope ledger.Scope, tenant string) Checkpoint {
	return Checkpoint{
		Type: typeCheckpoint, Tenant: tenant, Scope: ScopeID(scope), Segment: e.Number, Seq: e.Last, Head: e.Head,
		At: Time{e.At}, Final: e.Final, KeyID: e.KeyID, Signature: e.Signature,
	}
}

func encode(v any) []byte {
	data, _ := json.Marshal(v) // structs of texts, numbers and times always encode
	return data
}

func decode(what string, data []byte, version *int, into any) error {
	if err := strictjson.Unmarshal(data, into); err != nil || *version != recordVersion {
		return fmt.Errorf("read %s: %w", what, ledger.ErrCorrupt)
	}
	return nil
}

func decodeEntry(v ledger.Value) (Entry, error) {
	var e Entry
	err := decode("audit catalog", v.Data, &e.V, &e)
	return e, err
}
