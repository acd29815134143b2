package pebblestore

import (
	"encoding/binary"
	"io"

	"github.com/cockroachdb/pebble/v2/record"
)

// said is what a manifest says.
type said struct {
	end    int64  // of its last whole record
	needed uint64 // no log before this one is; 0: all are
	next   uint64 // what follows the last write that there was when that was said, or soon after; 0: that is not known
	files  uint64 // all files made before that was said have lower numbers; 0: it was said before
}

// firstWrite is the sequence number of the first write to a folder.
const firstWrite = 10

// The tags of what a record of a manifest may have in front of the tables it names
// (internal/manifest/version_edit.go of the engine), each with one number behind it,
// but for the first, which has a text, and the last, which has two.
const (
	editComparer     = 1
	editNeeded       = 2
	editNextFile     = 3
	editLast         = 4
	editPreviousLog  = 9
	editBackingGone  = 106
	editBackingAdded = 105
)

// readManifest reads a manifest as far as it goes.
func readManifest(f io.Reader) (m said) {
	records := record.NewReader(f, 0)
	for {
		r, err := records.Next()
		if err != nil {
			return m
		}
		record, err := io.ReadAll(r)
		if err != nil {
			return m
		}
		m.end = records.Offset()
		m.read(record)
	}
}

// read takes in the beginning of a record. One that names a log knows the last write
// of its time. That at the beginning of a manifest only repeats the log's name, and
// leaves the last write to the next; in a folder's first manifest it has neither.
func (m *said) read(record []byte) {
	e := readEdit(record)
	if e.needed != 0 {
		m.needed, m.next, m.files = e.needed, 0, e.files
		if e.begins {
			m.files = 0
		}
	}
	switch {
	case m.next != 0:
	case e.last != 0:
		m.next = max(e.last+1, firstWrite)
	case m.needed == 0:
		m.next = firstWrite
	}
}

// edit is what stands in front of the tables in a record of a manifest.
type edit struct {
	begins              bool // a manifest
	needed, files, last uint64
}

func readEdit(record []byte) (e edit) {
	number := func() uint64 {
		x, n := binary.Uvarint(record)
		record = record[max(n, 0):]
		return x
	}
	for {
		switch number() {
		case editComparer:
			e.begins = true
			length := number()
			record = record[min(length, uint64(len(record))):]
		case editNeeded:
			e.needed = number()
		case editNextFile:
			e.files = number()
		case editLast:
			e.last = number()
		case editPreviousLog, editBackingGone:
			number()
		case editBackingAdded:
			number()
			number()
		default:
			return e
		}
	}
}
