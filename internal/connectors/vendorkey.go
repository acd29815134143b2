package connectors

import (
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// KeyFormat is how a vendor key is written.
type KeyFormat string

const (
	KeyHex       KeyFormat = "hex"       // 32 to 64 lower-case hexadecimal digits
	KeyUUID      KeyFormat = "uuid"      // 36 characters
	KeyBase32Hex KeyFormat = "base32hex" // 26 to 52 of 0-9 a-v (RFC 4648 section 7, lower case)
)

// Idempotency is what a vendor offers against repeats of one action.
type Idempotency struct {
	In     string // header, body or query
	Name   string
	Format KeyFormat
	MaxLen int // in characters
	// Retention is how long the vendor promises to remember a key; zero where
	// it promises nothing.
	Retention time.Duration
	// Documented says that the vendor's own pages promise what a repeat does.
	Documented bool
}

// Characters that carry at least 128 bits, so that two writes never share a key
// by accident.
const (
	minHex       = 32
	uuidLen      = 36
	minBase32Hex = 26
)

// Fits says whether a key of enough entropy fits MaxLen; the error wraps
// ErrVendorKey.
func (i Idempotency) Fits() error {
	var need int
	switch i.Format {
	case KeyHex:
		need = minHex
	case KeyUUID:
		need = uuidLen
	case KeyBase32Hex:
		need = minBase32Hex
	default:
		return fmt.Errorf("%w: unknown format", ErrVendorKey)
	}
	if i.MaxLen < need {
		return fmt.Errorf("%w: %s needs %d characters, the vendor takes %d", ErrVendorKey, i.Format, need, i.MaxLen)
	}
	return nil
}

// VendorKey writes a keyed hash as this vendor takes it. The UUID is shaped as a
// version 4, the one vendors check for; a version 8 would be the truer name for
// a hash (RFC 9562 section 5.8) and is refused by those that check. It carries
// 122 bits of the hash, the other formats 128 and more.
func (i Idempotency) VendorKey(hash [32]byte) (string, error) {
	if err := i.Fits(); err != nil {
		return "", err
	}
	switch i.Format {
	case KeyUUID:
		return uuid(hash), nil
	case KeyBase32Hex:
		return clip(strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(hash[:])), i.MaxLen), nil
	default:
		return clip(hex.EncodeToString(hash[:]), i.MaxLen), nil
	}
}

// VendorKey returns the key of one write of this action, or "" if the action
// has no idempotency rule. hash is a keyed hash of tenant, connection and
// action id; the key is made once, at the claim, and stored.
func (a ActionSpec) VendorKey(hash [32]byte) (string, error) {
	if a.Idempotency == nil {
		return "", nil
	}
	return a.Idempotency.VendorKey(hash)
}

func uuid(hash [32]byte) string {
	b := [16]byte(hash[:16])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
