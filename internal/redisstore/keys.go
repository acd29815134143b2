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

func keysOf(scope ledger.Scope) keyspace {
	return keyspace{"hf:{" + base64.RawURLEncoding.EncodeToString(scope[:]) + "}"}
}

func (s keyspace) values() string { return s.tag + ":" }

func (s keyspace) value(k ledger.Key) string {
	return s.tag + ":" + string([]byte{byte(k.Kind)}) + k.ID
}

func (s keyspace) index(i ledger.Index) string { return s.tag + "#z" + string([]byte{byte(i)}) }

func (s keyspace) rows() string { return s.tag + "#rows" }

// mark is what a round of acknowledgement writes.
func (s keyspace) mark() string { return s.tag + "#ack" }

func (s keyspace) nonce(n ledger.Nonce) string { return s.tag + "#n" + string(n[:]) }

// parse is the reverse of value.
func (s keyspace) parse(key string) (ledger.Key, bool) {
	head := len(s.tag) + 1
	if len(key) <= head {
		return ledger.Key{}, false
	}
	return ledger.Key{Kind: ledger.Kind(key[head]), ID: key[head+1:]}, true
}
