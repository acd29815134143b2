// Package identity says when two requests are the same write.
//
// It owns the derivation of identities and fingerprints and the form of an
// agent's own key. It leaves to strictjson what a sound body is and what its
// canonical form is; to dedupe what follows from two requests being the same;
// to the api where a key came from and what a refusal looks like.
//
// Everything here is a pure function, safe for concurrent use. What is hashed,
// and how, is a promise to every record already stored: another rule needs
// another tag.
package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"

	"holdfast.dev/gateway/internal/strictjson"
)

// The first field of what is hashed; it keeps the two kinds of identity apart.
const (
	tagDerived  = "holdfast/v1/derived"
	tagSupplied = "holdfast/v1/supplied"
)

// Identity is what makes two requests the same write.
type Identity [sha256.Size]byte

// String is the identity in lower-case hex.
func (id Identity) String() string { return hex.EncodeToString(id[:]) }

// PublicID is the short form shown to agents and in the audit: the first 16 hex
// digits. It is for recognising, never for looking up.
func (id Identity) PublicID() string { return hex.EncodeToString(id[:8]) }

// Fingerprint stands for the whole request, whatever key it came with: it tells
// a repeat from a reused key, and a twin from another write.
type Fingerprint [sha256.Size]byte

// String is the fingerprint in lower-case hex.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Source says where an identity comes from.
type Source string

// The sources of an identity.
const (
	Derived  Source = "derived"  // from the request itself
	Supplied Source = "supplied" // from the agent's own key
)

// Input is one request, already authenticated and bound to a connection.
type Input struct {
	TenantID     string
	ConnectionID string // the opaque id, not the name: it outlives a rotation and dies with the connection
	Action       string
	Body         []byte   // raw JSON object; for an absent body the caller passes {}
	Key          string   // the agent's own key, "" if it sent none
	Ignore       []string // JSON Pointers of the members that are no part of the write
}

// Result is what a request is known by.
type Result struct {
	Identity    Identity
	Fingerprint Fingerprint
	Source      Source
}

// ErrIncomplete is the error for an Input without a tenant, connection or
// action: a mistake of the caller, never of an agent.
var ErrIncomplete = errors.New("derive identity: tenant, connection or action is missing")

// Derive computes identity and fingerprint of a request. The error is a
// *strictjson.Error about the body, a *KeyError, ErrIncomplete, or wraps
// strictjson.ErrPointer where an ignore rule is malformed.
func Derive(in Input) (Result, error) {
	if in.TenantID == "" || in.ConnectionID == "" || in.Action == "" {
		return Result{}, ErrIncomplete
	}
	room, _ := buffers.Get().(*[]byte) // nothing else is put there
	defer giveBack(room)
	// The canonical form is written where it is hashed.
	text, length := preimage((*room)[:0], in, tagDerived)
	text, err := strictjson.AppendCanonicalWithout(text, in.Body, in.Ignore)
	if err != nil {
		return Result{}, err
	}
	*room = text
	if text[length+8] != '{' {
		return Result{}, &strictjson.Error{Reason: "the body must be a JSON object"}
	}
	derived := digest(text, length)
	if in.Key == "" {
		return Result{Identity: derived, Fingerprint: Fingerprint(derived), Source: Derived}, nil
	}
	if err := CheckKey(in.Key); err != nil {
		return Result{}, err
	}
	text, length = preimage(text[:0], in, tagSupplied)
	text = append(text, in.Key...)
	*room = text
	supplied := digest(text, length)
	return Result{Identity: supplied, Fingerprint: Fingerprint(derived), Source: Supplied}, nil
}

// digest hashes a preimage whose last field, behind its length at length, is
// complete.
func digest(text []byte, length int) Identity {
	binary.BigEndian.PutUint64(text[length:], uint64(len(text)-length-8))
	return sha256.Sum256(text)
}

// preimage appends every field but the last, each after its length in bytes as
// an unsigned 64-bit big-endian integer, so that no field can borrow bytes from
// its neighbour, and room for the length of the last.
func preimage(dst []byte, in Input, tag string) (text []byte, length int) {
	for _, field := range [...]string{tag, in.TenantID, in.ConnectionID, in.Action} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(field)))
		dst = append(dst, field...)
	}
	return binary.BigEndian.AppendUint64(dst, 0), len(dst)
}

// buffers is room for preimages, so that an identity costs no allocation.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxKept is the largest buffer, in bytes, that waits for the next identity.
const maxKept = 64 << 10

func giveBack(room *[]byte) {
	if cap(*room) <= maxKept {
		buffers.Put(room)
	}
}
