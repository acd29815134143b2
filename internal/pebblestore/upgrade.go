package pebblestore

import (
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

// In format 1 an index entry was two keys, and each value that ends had a note of
// its own:
//
//	02 scope(16) 'm' index(1) member        score(8); where a member stands
//	01 expiry(8) value-key                  empty
//
// The first are not read any more, and an earlier release would miss those of what
// was indexed since: it would let entries stand where they are no longer meant. So
// they go, and the marker says so. The notes stay, and are read as they are.
const tagMember = 'm'

// upgrade brings a folder of format 1 to format 2: in one batch, so that a crash
// leaves the one or the other.
func (s *Store) upgrade() error {
	b := s.db.NewBatch()
	err := s.deleteMembers(b)
	if err == nil {
		err = b.Set(keyFormat, binary.BigEndian.AppendUint32(nil, formatVersion), nil)
	}
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return s.write(b)
}

// fewMembers are deleted one by one. A range costs the engine more than a key: when a
// table with many is opened it weighs each against the tables beneath, and is not
// closed before it has: minutes, where a million tenants had one each.
const fewMembers = 16

// deleteMembers deletes the members of each scope: as one range if they are many.
func (s *Store) deleteMembers(b *pebble.Batch) error {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tagScope}, UpperBound: []byte{tagScope + 1}})
	if err != nil {
		return readError("read scopes", err)
	}
	for ok := iter.First(); ok; {
		var scope ledger.Scope
		copy(scope[:], iter.Key()[1:])
		members := scoped(scope, tagMember, 0)
		if ok = iter.SeekGE(members); !ok {
			break
		}
		if err := deleteFrom(b, iter, members); err != nil {
			return errors.Join(err, iter.Close())
		}
		// Nothing of a scope has a tag as high as this.
		ok = iter.SeekGE(scoped(scope, 0xff, 0))
	}
	if err := iter.Close(); err != nil {
		return readError("read scopes", err)
	}
	return nil
}

// deleteFrom deletes the keys of a prefix, at the first of which the iterator may stand.
func deleteFrom(b *pebble.Batch, iter *pebble.Iterator, prefix []byte) error {
	end := prefixEnd(prefix)
	var few [][]byte
	for ok := true; ok && string(iter.Key()) < string(end); ok = iter.Next() {
		if len(few) == fewMembers {
			return b.DeleteRange(prefix, end, nil)
		}
		few = append(few, append([]byte(nil), iter.Key()...))
	}
	for _, key := range few {
		if err := b.Delete(key, nil); err != nil {
			return err
		}
	}
	return nil
}
