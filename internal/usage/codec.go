package usage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdfast.dev/gateway/internal/ledger"
)

// ErrUnreadable means a stored value is not one this release can read.
var ErrUnreadable = fmt.Errorf("usage: %w", ledger.ErrCorrupt)

// dayVersion is the first byte of a day's value. A release that could be
// misread by an older one raises it; a new column needs no raise, since a
// column that is not known is refused.
const dayVersion = 1

// encodeDay writes the figures of one day. Equal figures have equal bytes:
//
//	version(1) cells, and per cell in the order of its names
//	connection action key            each its length, then its bytes
//	figures                          how many are not zero, and per figure in
//	column count                     the order of columns
//
// Numbers are unsigned varints in the shortest form.
func encodeDay(cells Cells) []byte {
	b := binary.AppendUvarint([]byte{dayVersion}, uint64(len(cells)))
	for _, cell := range slices.SortedFunc(maps.Keys(cells), compareCells) {
		for _, name := range []string{cell.Connection, cell.Action, cell.KeyID} {
			b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		}
		n := cells[cell]
		used := 0
		for _, v := range n {
			if v != 0 {
				used++
			}
		}
		b = binary.AppendUvarint(b, uint64(used))
		for column, v := range n {
			if v != 0 {
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(column)), uint64(v))
			}
		}
	}
	return b
}

func compareCells(a, b Cell) int {
	if c := strings.Compare(a.Connection, b.Connection); c != 0 {
		return c
	}
	if c := strings.Compare(a.Action, b.Action); c != 0 {
		return c
	}
	return strings.Compare(a.KeyID, b.KeyID)
}

// decodeDay reads what encodeDay writes, and nothing else.
func decodeDay(data []byte) (Cells, error) {
	if len(data) == 0 || data[0] != dayVersion {
		return nil, ErrUnreadable
	}
	d := &decoder{rest: data[1:]}
	cells := Cells{}
	for range d.number(MaxCells + 1) {
		cell := Cell{Connection: d.name(), Action: d.name(), KeyID: d.name()}
		var n Counts
		for range d.number(columns) {
			column := d.number(columns - 1)
			n[column] = int64(d.number(1<<63 - 1))
		}
		if d.bad {
			return nil, ErrUnreadable
		}
		cells[cell] = n
	}
	// One spelling for each: what is not in order, repeated, zero or padded is
	// written differently.
	if d.bad || len(d.rest) > 0 || !bytes.Equal(encodeDay(cells), data) {
		return nil, ErrUnreadable
	}
	return cells, nil
}

type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) number(most uint64) uint64 {
	n, size := binary.Uvarint(d.rest)
	if d.bad || size <= 0 || n > most {
		d.bad = true
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) name() string {
	n := d.number(uint64(len(d.rest)))
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}
