package archive

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"

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
	buf    bytes.Buffer
	last   Hash
	rows   []Row
}

// begin starts the segment behind a head. From is the time of its first row.
func begin(head Head, scope ledger.Scope, from time.Time) *builder {
	b := &builder{last: head.Hash, header: Header{
		Type: typeSegment, V: segmentVersion, Tenant: head.Tenant, Scope: ScopeID(scope),
		Number: head.Number + 1, First: head.Seq + 1, Prev: head.Hash, From: Time{from.UTC()},
	}}
	b.buf.Write(b.header.Line())
	return b
}

var errCursor = errors.New("a row's cursor cannot be written into a segment")

func (b *builder) add(r ledger.Row) error {
	if !cursorFits(r.Cursor) {
		return errCursor
	}
	row := Row{Row: r, Seq: b.header.First + uint64(len(b.rows))}
	row.Hash = b.last.Next(row.Seq, r.At, r.Cursor, r.Data)
	b.last = row.Hash
	b.rows = append(b.rows, row)
	b.buf.Write(row.SealedLine())
	return nil
}

// close signs the segment and returns its text.
func (b *builder) close(s Signer, at time.Time, final bool) (Checkpoint, []byte) {
	c := Checkpoint{
		Type: typeCheckpoint, Tenant: b.header.Tenant, Scope: b.header.Scope, Segment: b.header.Number,
		Seq: b.header.First + uint64(len(b.rows)) - 1, Head: b.last, At: Time{at.UTC()}, Final: final,
	}
	c.sign(s)
	b.buf.Write(c.Line())
	return c, b.buf.Bytes()
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
