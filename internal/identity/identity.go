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
	"io"

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
	canonical, err := strictjson.CanonicalWithout(in.Body, in.Ignore)
	if err != nil {
		return Result{}, err
	}
	if canonical[0] != '{' {
		return Result{}, &strictjson.Error{Reason: "the body must be a JSON object"}
	}
	derived := digest(in, tagDerived, canonical)
	if in.Key == "" {
		return Result{Identity: derived, Fingerprint: Fingerprint(derived), Source: Derived}, nil
	}
	if err := CheckKey(in.Key); err != nil {
		return Result{}, err
	}
	supplied := digest(in, tagSupplied, []byte(in.Key))
	return Result{Identity: supplied, Fingerprint: Fingerprint(derived), Source: Supplied}, nil
}

func digest(in Input, tag string, last []byte) (sum Identity) {
	h := sha256.New()
	preimage(h, in, tag, last)
	h.Sum(sum[:0])
	return sum
}

// preimage writes what is hashed: each field after its length, so that no byte
// can move from one field to the next without changing the whole.
func preimage(h io.Writer, in Input, tag string, last []byte) {
	for _, field := range [...]string{tag, in.TenantID, in.ConnectionID, in.Action} {
		writeField(h, []byte(field))
	}
	writeField(h, last)
}

// writeField never fails: a hash.Hash takes every write.
func writeField(h io.Writer, field []byte) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(field)))
	_, _ = h.Write(length[:])
	_, _ = h.Write(field)
}
