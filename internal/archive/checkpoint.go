package archive

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"holdfast.dev/gateway/internal/ledger"
)

// Checkpoint closes a segment: it signs the hash of its last row.
type Checkpoint struct {
	Type    string  `json:"type"` // checkpoint
	Tenant  string  `json:"tenant"`
	Scope   ScopeID `json:"scope"`
	Segment uint64  `json:"segment"`
	Seq     uint64  `json:"seq"`  // number of the last row
	Head    Hash    `json:"head"` // and its hash
	At      Time    `json:"at"`   // when it was signed, by the store's clock
	// Final: the tenant was deleted and its log ended here.
	Final     bool   `json:"final"`
	KeyID     string `json:"key_id"`
	Signature []byte `json:"signature"`
}

// tagCheckpoint separates these signatures from every other use of the key.
const tagCheckpoint = "holdfast/v1/audit-checkpoint"

// signed is what the signature covers: fields, each preceded by its length, so
// that nothing depends on how JSON is written.
func (c *Checkpoint) signed() []byte {
	final := byte(0)
	if c.Final {
		final = 1
	}
	b := prefixed(nil, []byte(tagCheckpoint))
	b = prefixed(b, []byte(c.Tenant))
	b = prefixed(b, c.Scope[:])
	b = prefixed(b, binary.BigEndian.AppendUint64(nil, c.Segment))
	b = prefixed(b, binary.BigEndian.AppendUint64(nil, c.Seq))
	b = prefixed(b, c.Head[:])
	b = prefixed(b, binary.BigEndian.AppendUint64(nil, uint64(c.At.UnixMilli())))
	b = prefixed(b, []byte{final})
	return prefixed(b, []byte(c.KeyID))
}

// Line returns the line of the checkpoint, with its line break.
func (c Checkpoint) Line() []byte { return lineOf(c) }

// ParseCheckpoint reads a checkpoint as Line writes it; white space around it is
// ignored. It does not check the signature.
func ParseCheckpoint(text []byte) (Checkpoint, error) { return parseCheckpoint(bytes.TrimSpace(text)) }

func parseCheckpoint(line []byte) (Checkpoint, error) {
	var c Checkpoint
	if json.Unmarshal(line, &c) != nil || c.Type != typeCheckpoint || !same(line, c.Line()) {
		return Checkpoint{}, errors.New("not a checkpoint of an audit log")
	}
	return c, nil
}

// Signer signs checkpoints. A ring of secret keys is one: its first key signs.
type Signer interface {
	Sign(message []byte) []byte
	// SigningKeys are the public keys of the ring; the first is the one that Sign
	// uses.
	SigningKeys() []ed25519.PublicKey
}

func (c *Checkpoint) sign(s Signer) {
	c.KeyID = KeyID(s.SigningKeys()[0])
	c.Signature = s.Sign(c.signed())
}

// KeyID names a public key: the first 8 bytes of its SHA-256.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// FormatKey writes a public key as people pass it on.
func FormatKey(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }

// ParseKey reads what FormatKey writes.
func ParseKey(text string) (ed25519.PublicKey, error) {
	key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("not a public key: 32 bytes in base64 are wanted")
	}
	return key, nil
}

// Keys are the public keys that checkpoints may be signed with, by their ids.
type Keys map[string]ed25519.PublicKey

// NewKeys returns a set of keys.
func NewKeys(keys ...ed25519.PublicKey) Keys {
	set := Keys{}
	for _, k := range keys {
		set[KeyID(k)] = k
	}
	return set
}

// Errors of Check.
var (
	ErrUnknownKey = errors.New("signed with a key that is not among those given")
	ErrSignature  = errors.New("the signature does not fit")
)

// Check says whether one of the keys signed the checkpoint.
func (c *Checkpoint) Check(keys Keys) error {
	key, ok := keys[c.KeyID]
	if !ok {
		return fmt.Errorf("key %.16q: %w", c.KeyID, ErrUnknownKey)
	}
	if !ed25519.Verify(key, c.signed(), c.Signature) {
		return ErrSignature
	}
	return nil
}

// of says whether the checkpoint is one of a log.
func (c *Checkpoint) of(scope ledger.Scope, tenant string) bool {
	return ledger.Scope(c.Scope) == scope && c.Tenant == tenant
}
