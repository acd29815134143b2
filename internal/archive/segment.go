package archive

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// MaxSegment bounds what a stored segment may unpack to. It is far above what a
// sealer writes and only stops a damaged object from asking for more.
const MaxSegment = 256 << 20

// codec packs segments. Its coders are safe for concurrent EncodeAll and
// DecodeAll, and start no goroutines for them.
type codec struct {
	pack   *zstd.Encoder
	unpack *zstd.Decoder
}

func newCodec() (*codec, error) {
	pack, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}
	unpack, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxSegment))
	if err != nil {
		return nil, fmt.Errorf("make decompressor: %w", err)
	}
	return &codec{pack: pack, unpack: unpack}, nil
}

// builder writes one segment.
type builder struct {
	header Header
	text   []byte
	last   Hash
	rows   uint64
}

// begin starts the segment behind a head. From is the time of its first row, size
// about how many bytes its rows have.
func begin(head Head, scope ledger.Scope, from time.Time, size int) *builder {
	b := &builder{last: head.Hash, header: Header{
		Type: typeSegment, V: segmentVersion, Tenant: head.Tenant, Scope: ScopeID(scope),
		Number: head.Number + 1, First: head.Seq + 1, Prev: head.Hash, From: Time{from.UTC()},
	}}
	b.text = append(make([]byte, 0, size+size/2+1<<10), b.header.Line()...)
	return b
}

var errCursor = errors.New("a row's cursor cannot be written into a segment")

// add writes one more row, and returns what it says if it can be read.
func (b *builder) add(r ledger.Row) (said audit.Row, readable bool, err error) {
	if !cursorFits(r.Cursor) {
		return said, false, errCursor
	}
	row := Row{Row: r, Seq: b.header.First + b.rows}
	row.Hash = b.last.Next(row.Seq, r.At, r.Cursor, r.Data)
	b.last = row.Hash
	b.rows++
	said, unreadable := audit.Decode(r.Data)
	b.text = row.appendLine(b.text, true, unreadable == nil)
	return said, unreadable == nil, nil
}

// close signs the segment and returns its text.
func (b *builder) close(s Signer, at time.Time, final bool) (Checkpoint, []byte) {
	c := Checkpoint{
		Type: typeCheckpoint, Tenant: b.header.Tenant, Scope: b.header.Scope, Segment: b.header.Number,
		Seq: b.header.First + b.rows - 1, Head: b.last, At: Time{at.UTC()}, Final: final,
	}
	c.sign(s)
	b.text = append(b.text, c.Line()...)
	return c, b.text
}

// ErrDamaged means that an object of the archive is missing or is not what was
// stored.
var ErrDamaged = errors.New("audit archive is damaged")

// parseRows reads the rows of a segment's text, as they are: what they prove is
// for [Verify] to say. Rows are copies and do not hold the text.
func parseRows(text []byte, count int) ([]Row, error) {
	rows := make([]Row, 0, count)
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		if kindOf(line) != typeRow {
			continue
		}
		row, _, err := parseRow(line)
		if err != nil {
			return nil, fmt.Errorf("read segment: %w", ErrDamaged)
		}
		row.Data = bytes.Clone(row.Data)
		rows = append(rows, row)
	}
	return rows, nil
}
