package redisstore

import (
	"encoding/base64"
	"errors"

	"holdfast.dev/gateway/internal/ledger"
)

// maxID is the longest id and index member, in bytes, that the contract has.
const maxID = 255

var (
	errLongID    = errors.New("an id is longer than 255 bytes")
	errBadLimit  = errors.New("a limit must be positive")
	errBadCursor = errors.New("the row cursor is not one of this store")
)

// keyspace makes the keys of one scope. They share a hash tag, the part in
// braces, so that a Cluster keeps them on one master. What follows the tag
// says what the key is: ":" a value, "#" the rest, so an id can never be taken
// for an index.
type keyspace struct{ tag string }

// What follows the tag; the kind and the id of a value, the letter of an index and
// the bytes of a nonce come behind it.
const (
	valueMark = ":"
	indexMark = "#z"
	nonceMark = "#n"
	rowsMark  = "#rows"
	ackMark   = "#ack"
)

func keysOf(scope ledger.Scope) keyspace {
	tag := append(make([]byte, 0, 27), "hf:{"...)
	tag = base64.RawURLEncoding.AppendEncode(tag, scope[:])
	return keyspace{string(append(tag, '}'))}
}

func (s keyspace) index(i ledger.Index) string { return s.tag + indexMark + letter(byte(i)) }

func (s keyspace) rows() string { return s.tag + rowsMark }

// mark is what a round of acknowledgement writes.
func (s keyspace) mark() string { return s.tag + ackMark }

func (s keyspace) nonce(n ledger.Nonce) string { return s.tag + nonceMark + string(n[:]) }

// letter is a string of one byte.
func letter(b byte) string { return string([]byte{b}) }

// parse says which value's a key is.
func (s keyspace) parse(key string) (ledger.Key, bool) {
	head := len(s.tag) + len(valueMark)
	if len(key) <= head {
		return ledger.Key{}, false
	}
	return ledger.Key{Kind: ledger.Kind(key[head]), ID: key[head+1:]}, true
}
