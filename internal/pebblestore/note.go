package pebblestore

import "holdfast.dev/gateway/internal/ledger"

// A note of expiry says what of a step ends at one instant, so that it can be
// deleted then:
//
//	01 expiry(8) scope(16) version(8)    kind(1) length(1) id, of one value after another
//	01 expiry(8) value-key               empty; of one value, in folders that were of format 1
//
// The version is the step's. Every value that ends is named by a note of the instant
// at which it does, or was when that note was dealt with. It may be put again, so a
// note may also name what ends later, never, or is gone.
const noteLength = 1 + 8 + len(ledger.Scope{}) + len(ledger.Version{})

func noteKey(expires int64, scope ledger.Scope, v ledger.Version) []byte {
	k := make([]byte, 0, noteLength)
	k = append(appendMillis(append(k, tagExpiry), expires), scope[:]...)
	return append(k, v[:]...)
}

// draft is of a note: what a step puts that ends at one instant.
type draft struct {
	expires int64
	list    []byte
}

// add names a value by its key.
func (d *draft) add(valueKey []byte) {
	kind, id := valueKey[scopeLength], valueKey[scopeLength+1:]
	d.list = append(append(d.list, kind, byte(len(id))), id...)
}

// note is a note of expiry as it is read.
type note struct {
	expires int64
	scope   ledger.Scope
	values  [][]byte // their keys
}

// parseNote takes a note apart. One that no release wrote names nothing.
func parseNote(key, list []byte) (n note, ok bool) {
	if len(key) < 9 || key[0] != tagExpiry {
		return note{}, false
	}
	n.expires, _ = decodeMillis(key[1:9])
	if len(list) == 0 {
		return n.ofOne(key[9:])
	}
	if len(key) != noteLength {
		return note{}, false
	}
	copy(n.scope[:], key[9:])
	for len(list) > 0 {
		if len(list) < 2 || len(list) < 2+int(list[1]) {
			return note{}, false
		}
		end := 2 + int(list[1])
		value := append(scoped(n.scope, tagValue, end-1), list[0])
		n.values = append(n.values, append(value, list[2:end]...))
		list = list[end:]
	}
	return n, true
}

// ofOne reads a note of format 1.
func (n note) ofOne(valueKey []byte) (note, bool) {
	if len(valueKey) < scopeLength+1 || valueKey[0] != tagScope || valueKey[scopeLength-1] != tagValue {
		return note{}, false
	}
	copy(n.scope[:], valueKey[1:])
	n.values = [][]byte{append([]byte(nil), valueKey...)}
	return n, true
}
