// Package seal encrypts what Holdfast must keep but nobody may read in the
// store (vendor credentials, planned requests), makes keyed hashes (vendor
// markers, credential fingerprints), and signs (checkpoints of the audit).
//
// It owns the ring of secret keys, the sealed format and the derivation of
// every key from them. What is sealed, and to whom it is bound, is the
// caller's: the caller passes the additional data (tenant, connection, action)
// that a sealed value must be opened with.
//
// # Format
//
//	1 byte  format (1)
//	8 bytes id of the secret key
//	24 bytes random nonce
//	n bytes AES-256-GCM ciphertext with its 16-byte tag
//
// The cipher is XAES-256-GCM (C2SP): AES-256-GCM under a key derived for each
// message from half of a 24-byte nonce. Plain AES-GCM with a random 12-byte
// nonce is good for 2^32 messages per key (NIST SP 800-38D, section 8.3), which
// a gateway that seals every request reaches in weeks; this one is good for
// 2^80.
package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

const (
	format1   = 1
	keyIDSize = 8
	keySize   = 32
	headSize  = 1 + keyIDSize
	// Overhead is how many bytes longer than its plaintext a sealed value is.
	Overhead = headSize + nonceSize + tagSize
)

// HKDF info strings (RFC 5869, section 3.2): one per use, so that no derived
// key can stand in for another.
const (
	infoKeyID = "holdfast/v1/seal/key-id"
	infoSeal  = "holdfast/v1/seal/xaes-256-gcm"
	infoMAC   = "holdfast/v1/seal/hmac-sha-256"
)

// Errors of Open. They never carry bytes of the sealed value.
var (
	// ErrUnknownKey means the value was sealed under a key that is not in the
	// ring: it was rotated out too early, or belongs to another deployment.
	ErrUnknownKey = errors.New("sealed under a key that is not configured")
	// ErrTampered means the value is not what Seal returned, or is opened with
	// other additional data than it was sealed with.
	ErrTampered = errors.New("sealed value does not open")
)

// Ring holds the secret keys: the first seals and keys the hashes, all open.
// It is immutable and safe for concurrent use. It prints as a fixed word, so
// that no log line or error can carry a key.
type Ring struct {
	keys []secret    // at least one
	mac  hash.Cloner // HMAC under the key of its own, to which nothing was written
}

type secret struct {
	id     [keyIDSize]byte
	box    *xaes
	signer ed25519.PrivateKey
}

func newRing(masters [][]byte) (*Ring, error) {
	r := &Ring{}
	for i, m := range masters {
		id, err := derive(m, infoKeyID, keyIDSize)
		if err != nil {
			return nil, err
		}
		sealing, err := derive(m, infoSeal, keySize)
		if err != nil {
			return nil, err
		}
		box, err := newXAES(sealing)
		if err != nil {
			return nil, err
		}
		seed, err := derive(m, infoSign, ed25519.SeedSize)
		if err != nil {
			return nil, err
		}
		s := secret{id: [keyIDSize]byte(id), box: box, signer: ed25519.NewKeyFromSeed(seed)}
		if _, known := r.find(s.id[:]); known {
			return nil, fmt.Errorf("secret key %d is listed twice", i+1)
		}
		r.keys = append(r.keys, s)
	}
	mac, err := derive(masters[0], infoMAC, keySize)
	if err != nil {
		return nil, err
	}
	keyed, ok := hmac.New(sha256.New, mac).(hash.Cloner)
	if !ok { // the standard library's all can
		return nil, errors.New("set up keyed hash: it cannot be cloned")
	}
	r.mac = keyed
	return r, nil
}

func derive(master []byte, info string, size int) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, master, nil, info, size)
	if err != nil {
		return nil, fmt.Errorf("derive key: %w", err)
	}
	return key, nil
}

// Format implements fmt.Formatter: whatever the verb, no key is printed.
func (r *Ring) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("seal.Ring")) }

// Seal encrypts plaintext under the ring's first key and binds it to the
// additional data, which Open must be given again, field by field: fields are
// length-prefixed, so ("ab", "c") does not open what was sealed for ("a", "bc").
func (r *Ring) Seal(plaintext []byte, aad ...[]byte) []byte {
	first := r.keys[0]
	out := make([]byte, headSize+nonceSize, Overhead+len(plaintext))
	out[0] = format1
	copy(out[1:], first.id[:])
	nonce := out[headSize:]
	// crypto/rand.Read never fails: it ends the process rather than return
	// weak bytes.
	_, _ = rand.Read(nonce)
	return first.box.seal(out, nonce, plaintext, bind(out[:headSize], aad))
}

// Outdated says that a sealed value was not sealed under the first key of the
// ring. It does not say that the value opens.
func (r *Ring) Outdated(sealed []byte) bool {
	return len(sealed) < headSize || !bytes.Equal(sealed[1:headSize], r.keys[0].id[:])
}

// Open decrypts what Seal returned. The error is ErrUnknownKey or ErrTampered.
func (r *Ring) Open(sealed []byte, aad ...[]byte) ([]byte, error) {
	if len(sealed) < Overhead || sealed[0] != format1 {
		return nil, ErrTampered
	}
	head, rest := sealed[:headSize], sealed[headSize:]
	key, known := r.find(head[1:])
	if !known {
		return nil, ErrUnknownKey
	}
	plaintext, err := key.box.open(rest[:nonceSize], rest[nonceSize:], bind(head, aad))
	if err != nil {
		return nil, ErrTampered
	}
	return plaintext, nil
}

// MAC returns HMAC-SHA-256 over the label and the fields, each preceded by its
// length, under a key of its own derived from the ring's first key.
//
// Rotating the first key changes the result. Callers therefore store what they
// got and never compute it again to compare.
func (r *Ring) MAC(label string, fields ...[]byte) [sha256.Size]byte {
	var room [256]byte
	text := prefixed(room[:0], []byte(label))
	for _, f := range fields {
		text = prefixed(text, f)
	}
	h, err := r.mac.Clone()
	if err != nil {
		panic(err) // documented for hashes that hold others which cannot; SHA-256 can
	}
	h.Write(text)
	return [sha256.Size]byte(h.Sum(text[:0]))
}

func (r *Ring) find(id []byte) (secret, bool) {
	for _, k := range r.keys {
		if bytes.Equal(k.id[:], id) {
			return k, true
		}
	}
	return secret{}, false
}

// bind builds the cipher's additional data: the head of the format, so that it
// cannot be exchanged, and the caller's fields.
func bind(head []byte, fields [][]byte) []byte {
	size := len(head)
	for _, f := range fields {
		size += 8 + len(f)
	}
	out := append(make([]byte, 0, size), head...)
	for _, f := range fields {
		out = prefixed(out, f)
	}
	return out
}

func prefixed(dst, field []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(field)))
	return append(dst, field...)
}
