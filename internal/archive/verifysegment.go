package archive

import (
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// checkpoint closes the segment being read and looks at it as a whole.
func (v *Verifier) checkpoint(c Checkpoint) {
	s := v.seg
	if s == nil && v.lost {
		v.lost = false
		v.report.Segments++
		if v.begun && c.Check(v.keys) == nil && c.of(ledger.Scope(v.report.Scope), v.report.Tenant) {
			v.next = place{number: c.Segment + 1, first: c.Seq + 1, prev: c.Head}
		}
		return
	}
	if s == nil {
		v.broken = true
		v.report.add(Finding{Kind: StraySegment, Segment: c.Segment, Line: v.line, Detail: "a checkpoint without the segment it closes"})
		return
	}
	v.seg = nil
	v.report.Segments++
	h := s.header
	if v.begun && (h.Scope != v.report.Scope || h.Tenant != v.report.Tenant) {
		v.broken = true
		v.report.add(Finding{Kind: ForeignSegment, Segment: h.Number, Line: s.line,
			Detail: fmt.Sprintf("it belongs to the log of tenant %.64q", h.Tenant)})
		return
	}
	before := v.findings()
	if !v.follows(s) {
		return
	}
	v.rows(s, c)
	v.signature(s, c)
	v.compareLater(s, c)
	v.next = place{number: h.Number + 1, first: c.Seq + 1, prev: c.Head}
	if s.foul || v.findings() > before {
		v.broken = true
	}
	if !v.broken {
		v.report.Proven, v.report.Head, v.report.Final = c.Seq, c.Head, c.Final
		v.report.ProvenAt = c.At.Time
		if n := len(s.rows); n > 0 {
			v.report.ProvenAt = time.UnixMilli(s.rows[n-1].at).UTC()
		}
	}
}

func (v *Verifier) findings() int { return len(v.report.Findings) + v.report.More }

// follows says whether a segment is one to be looked at: not one from before.
// What stands between it and the one before is reported.
func (v *Verifier) follows(s *segment) bool {
	h := s.header
	if !v.begun {
		v.begin(s)
		return true
	}
	if v.report.Open > 0 {
		v.report.add(Finding{Kind: StraySegment, Segment: h.Number, Line: s.line, Detail: "it stands behind rows that were not sealed yet"})
	}
	switch {
	case h.Number < v.next.number:
		v.broken = true
		v.report.add(Finding{Kind: StraySegment, Segment: h.Number, Line: s.line,
			Detail: fmt.Sprintf("segment %d was to come here", v.next.number)})
		return false
	case h.Number > v.next.number:
		f := Finding{Kind: MissingSegment, Segment: v.next.number, Row: v.next.first, To: h.First - 1, Line: s.line}
		f.Detail = fmt.Sprintf("the next one there is %d", h.Number)
		v.report.add(f)
	case h.First != v.next.first || h.Prev != v.next.prev:
		v.report.add(Finding{Kind: AlteredSegment, Segment: h.Number, Row: h.First, Line: s.line,
			Detail: "it does not continue the segment before it"})
	}
	return true
}

func (v *Verifier) begin(s *segment) {
	h := s.header
	v.begun = true
	v.report.Scope, v.report.Tenant, v.report.Begins = h.Scope, h.Tenant, h.First
	if v.stray || v.report.Open > 0 {
		v.report.add(Finding{Kind: InsertedRow, Line: 1, Segment: h.Number, Detail: "rows stand before the first segment"})
	}
	// The first segment has a row, so no other one begins with row 1.
	if h.Number != 1 && h.First == 1 || h.Number == 1 && (h.First != 1 || h.Prev != Genesis(ledger.Scope(h.Scope), h.Tenant)) {
		v.report.add(Finding{Kind: AlteredSegment, Segment: h.Number, Row: h.First, Line: s.line, Detail: "it is not how a log of this tenant begins"})
	}
}

// rows looks for what was done to the rows of a segment.
func (v *Verifier) rows(s *segment, c Checkpoint) {
	h := s.header
	from := c.At.UnixMilli()
	if len(s.rows) > 0 {
		from = s.rows[0].at
	}
	if s.over > 0 {
		s.foul = true
		v.report.add(Finding{Kind: AlteredSegment, Segment: h.Number, Row: h.First, Line: s.line, Detail: "it has more rows than any segment"})
		return
	}
	last := h.Prev
	clean := h.First+uint64(len(s.rows)) == c.Seq+1
	for i := 0; clean && i < len(s.rows); i++ {
		r := &s.rows[i]
		clean = r.seq == h.First+uint64(i) && last.next(r.seq, r.at, r.content) == r.hash
		last = r.hash
	}
	before := v.findings()
	if !clean {
		v.locate(s, c)
	}
	if v.findings() > before {
		return
	}
	if !clean || last != c.Head {
		v.report.add(Finding{Kind: AlteredSegment, Segment: h.Number, Row: h.First, To: c.Seq, Line: s.line,
			Detail: "its rows do not lead to the hash that was signed"})
	} else if from != h.From.UnixMilli() {
		v.report.add(Finding{Kind: AlteredSegment, Segment: h.Number, Row: h.First, Line: s.line,
			Detail: "its header does not show the time of its first row"})
	}
}

// locate says which rows are to blame. Each row is held against the hash that
// the row before it claims, so that a changed row does not spoil those behind it.
func (v *Verifier) locate(s *segment, c Checkpoint) {
	h := s.header
	claims := v.claims(s, c)
	seen := make(map[uint64]bool, len(s.rows))
	highest := uint64(0)
	for i := range s.rows {
		r := &s.rows[i]
		f := Finding{Segment: h.Number, Row: r.seq, Line: r.line}
		switch {
		case r.seq < h.First || r.seq > c.Seq || seen[r.seq] || claims[r.seq] != r.hash:
			f.Kind, f.Detail = InsertedRow, "the segment that was signed has no such row in this place"
			v.report.add(f)
			continue
		case !v.fits(claims, r):
			f.Kind, f.Detail = ChangedRow, "it does not fit its hash and the row before it"
			v.report.add(f)
		case r.seq < highest:
			f.Kind, f.Detail = SwappedRows, fmt.Sprintf("it stands behind row %d", highest)
			v.report.add(f)
		}
		seen[r.seq] = true
		highest = max(highest, r.seq)
	}
	v.missing(s, c, seen)
}

// claims are the hashes that the rows of a segment claim to have. Of two rows
// with one number it is the one that the next row follows, if any does.
func (v *Verifier) claims(s *segment, c Checkpoint) map[uint64]Hash {
	h := s.header
	claims := make(map[uint64]Hash, len(s.rows)+1)
	rivals := map[uint64][]Hash{}
	for i := range s.rows {
		r := &s.rows[i]
		if r.seq < h.First || r.seq > c.Seq {
			continue
		}
		if first, twice := claims[r.seq]; twice {
			if len(rivals[r.seq]) == 0 {
				rivals[r.seq] = []Hash{first}
			}
			rivals[r.seq] = append(rivals[r.seq], r.hash)
			continue
		}
		claims[r.seq] = r.hash
	}
	for i := range s.rows {
		r := &s.rows[i]
		for _, rival := range rivals[r.seq-1] {
			if rival.next(r.seq, r.at, r.content) == r.hash {
				claims[r.seq-1] = rival
			}
		}
	}
	claims[h.First-1] = h.Prev
	return claims
}

// fits says whether a row follows the row before it, as far as there is one.
func (v *Verifier) fits(claims map[uint64]Hash, r *rowMark) bool {
	prev, known := claims[r.seq-1]
	return !known || prev.next(r.seq, r.at, r.content) == r.hash
}

func (v *Verifier) missing(s *segment, c Checkpoint, seen map[uint64]bool) {
	h := s.header
	found := 0
	for seq := h.First; seq <= c.Seq && found < maxFindings; seq++ {
		if seen[seq] {
			continue
		}
		f := Finding{Kind: MissingRow, Segment: h.Number, Row: seq, Line: s.line, Detail: "it was removed"}
		for seq < c.Seq && !seen[seq+1] && seq-f.Row < maxSegmentRows {
			seq++
		}
		f.To = seq
		v.report.add(f)
		found++
		if c.Seq-f.Row >= maxSegmentRows {
			return // not a segment of ours; what is missing was said
		}
	}
}

func (v *Verifier) signature(s *segment, c Checkpoint) {
	h := s.header
	err := c.Check(v.keys)
	if err == nil && (c.Segment != h.Number || !c.of(ledger.Scope(h.Scope), h.Tenant) || c.Seq+1 < h.First) {
		v.report.add(Finding{Kind: AlteredSegment, Segment: h.Number, Row: h.First, Line: v.line, Detail: "its checkpoint is that of another segment"})
		return
	}
	if err != nil {
		v.report.add(Finding{Kind: signatureKind(err), Segment: h.Number, Row: c.Seq, Line: v.line, Detail: err.Error()})
	}
}

// compareLater holds a segment against the later checkpoint, if it is its own.
func (v *Verifier) compareLater(s *segment, c Checkpoint) {
	if v.later == nil || v.later.Segment != s.header.Number || v.later.Scope != s.header.Scope {
		return
	}
	v.marked = true
	if v.later.Seq != c.Seq || v.later.Head != c.Head {
		v.report.add(Finding{Kind: Rewritten, Segment: s.header.Number, Row: c.Seq, Line: v.line,
			Detail: "it is not the segment that the later checkpoint was signed for"})
	}
}
