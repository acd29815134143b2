package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Hash is the hash of a row, which covers every row before it.
type Hash [sha256.Size]byte

// tagChain separates these hashes from every other use of SHA-256.
const tagChain = "holdfast/v1/audit"

// Genesis is the hash that stands before the first row of a scope. It names the
// scope and its tenant, so that one tenant's log can never pass for another's.
func Genesis(scope ledger.Scope, tenant string) Hash {
	b := prefixed(nil, []byte(tagChain))
	b = prefixed(b, scope[:])
	b = prefixed(b, []byte(tenant))
	return sha256.Sum256(b)
}

// content is the part of a row's hash that does not depend on where it stands.
type content Hash

// contentOf covers the row as it is stored, byte for byte, and its cursor.
func contentOf(cursor string, data []byte) content {
	var room [1 << 10]byte // enough for most
	b := binary.BigEndian.AppendUint64(room[:0], uint64(len(cursor)))
	b = append(b, cursor...)
	return sha256.Sum256(prefixed(b, data))
}

// Next is the hash of the row behind this one, given its number, the store's
// time of it in milliseconds and what it holds:
//
//	SHA-256(hash of the row before (32) | number (8) | time (8) | SHA-256(cursor, row))
//
// Numbers are big-endian; cursor and row are each preceded by their length in 8
// bytes.
func (h Hash) Next(seq uint64, at time.Time, cursor string, row []byte) Hash {
	return h.next(seq, at.UnixMilli(), contentOf(cursor, row))
}

func (h Hash) next(seq uint64, at int64, c content) Hash {
	var b [2*sha256.Size + 16]byte
	copy(b[:], h[:])
	binary.BigEndian.PutUint64(b[sha256.Size:], seq)
	binary.BigEndian.PutUint64(b[sha256.Size+8:], uint64(at))
	copy(b[sha256.Size+16:], c[:])
	return sha256.Sum256(b[:])
}

func prefixed(dst, field []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(field)))
	return append(dst, field...)
}

var errHex = errors.New("not lower-case hexadecimal digits")

// MarshalText and UnmarshalText: lower-case hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText accepts only what MarshalText writes.
func (h *Hash) UnmarshalText(text []byte) error { return unhex(h[:], text) }

// ScopeID is a scope in the form that segments show.
type ScopeID ledger.Scope

// MarshalText writes lower-case hexadecimal digits.
func (s ScopeID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText accepts only what MarshalText writes.
func (s *ScopeID) UnmarshalText(text []byte) error { return unhex(s[:], text) }

func (s ScopeID) String() string { return hex.EncodeToString(s[:]) }

func unhex(dst, text []byte) error {
	if len(text) != hex.EncodedLen(len(dst)) {
		return errHex
	}
	for _, c := range text {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return errHex
		}
	}
	_, err := hex.Decode(dst, text)
	return err
}
