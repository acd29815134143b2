package archive

import (
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// BuildSegment makes the text of the segment behind a head, and the head behind
// it, as a sealer does.
func BuildSegment(s Signer, h Head, scope ledger.Scope, at time.Time, final bool, rows ...ledger.Row) (string, Checkpoint, Head) {
	from := at
	if len(rows) > 0 {
		from = rows[0].At
	}
	b := begin(h, scope, from, 0)
	for _, r := range rows {
		if _, _, err := b.add(r); err != nil {
			panic(err)
		}
	}
	c, text := b.close(s, at, final)
	h.Number, h.Seq, h.Hash = c.Segment, c.Seq, c.Head
	return string(text), c, h
}

// NewHead is the head of a scope of which nothing is sealed.
func NewHead(scope ledger.Scope, tenant string) Head { return newHead(scope, tenant) }

// ParseRows reads the rows of a segment's text.
func ParseRows(text []byte) ([]Row, error) { return parseRows(text, 0) }
