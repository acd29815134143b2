package archive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Report says what a log proves.
type Report struct {
	Tenant string
	Scope  ScopeID
	// Begins is the number of the first row. Rows before it are not there; a log
	// whose retention has passed begins after row 1, and so would one cut there.
	Begins uint64
	// Proven is the number of the row up to which the log is whole, from Begins on,
	// and ProvenAt the store's time of it; 0 if nothing is proven.
	Proven   uint64
	ProvenAt time.Time
	Head     Hash // of the row Proven
	// Segments and Rows are what was read; Open are the rows behind the last
	// checkpoint, which nothing proves yet.
	Segments, Rows, Open int
	// Final: the log of a deleted tenant, to its end.
	Final bool

	Findings []Finding
	More     int // findings beyond those listed
}

// Whole says whether nothing was found and something is proven.
func (r Report) Whole() bool { return len(r.Findings) == 0 && r.Proven > 0 }

func (r *Report) add(f Finding) {
	if len(r.Findings) >= maxFindings {
		r.More++
		return
	}
	r.Findings = append(r.Findings, f)
}

const (
	// maxLine bounds a line: the largest row, its labels fully escaped, is far
	// below.
	maxLine  = 1 << 20
	readSize = 64 << 10
	// maxSegmentRows bounds what is remembered of one segment.
	maxSegmentRows = 1 << 17
)

// Verifier reads the lines of a log and finds what was changed in it. It keeps
// some 100 bytes for each row of one segment, and nothing of rows before it.
type Verifier struct {
	keys  Keys
	later *Checkpoint

	report Report
	line   int
	begun  bool
	next   place    // where the next segment must begin
	seg    *segment // the one being read
	broken bool     // nothing further is proven
	marked bool     // the later checkpoint's segment went by
	stray  bool     // rows without segments were seen before any segment
	lost   bool     // a header was unreadable: what follows belongs to no known segment
}

// place is where a segment begins.
type place struct {
	number, first uint64
	prev          Hash
}

// segment is one being read.
type segment struct {
	header Header
	line   int
	rows   []rowMark
	over   int // rows beyond those remembered
	foul   bool
}

// rowMark is what is remembered of a row: enough to say whether it follows any
// given hash.
type rowMark struct {
	seq     uint64
	at      int64
	hash    Hash // as the line claims
	content content
	line    int
}

// NewVerifier returns a verifier that trusts the keys. Later, if not nil, is a
// checkpoint that was put aside: the log must still lead to it, or go beyond it.
func NewVerifier(keys Keys, later *Checkpoint) *Verifier { return &Verifier{keys: keys, later: later} }

// Verify reads a whole log. The error is that of reading; what is wrong with the
// log is in the report.
func Verify(in io.Reader, keys Keys, later *Checkpoint) (Report, error) {
	v := NewVerifier(keys, later)
	buf := bufio.NewReaderSize(in, readSize)
	var long []byte // what was read of a line that the buffer cannot hold
	for {
		part, err := buf.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if long = append(long, part...); len(long) <= maxLine {
				continue
			}
			v.unreadable("it is longer than any line of a log")
			if err := skipLine(buf); err != nil {
				return v.end(err)
			}
			long = long[:0]
			continue
		case len(long) > 0:
			long = append(long, part...)
			part = long
		}
		if len(part) > 0 {
			v.Line(bytes.TrimSuffix(part, []byte("\n")))
		}
		if err != nil {
			return v.end(err)
		}
		long = long[:0]
	}
}

// skipLine passes over the rest of a line.
func skipLine(buf *bufio.Reader) error {
	for {
		_, err := buf.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

func (v *Verifier) end(err error) (Report, error) {
	if !errors.Is(err, io.EOF) {
		return v.Close(), fmt.Errorf("read log: %w", err)
	}
	return v.Close(), nil
}

// Line takes one line without its line break.
func (v *Verifier) Line(line []byte) {
	switch kindOf(line) {
	case typeSegment:
		if h, err := parseHeader(line); err == nil {
			v.line++
			v.open(h)
			return
		}
	case typeRow:
		if r, sealed, err := parseRow(line); err == nil {
			v.line++
			v.row(r, sealed)
			return
		}
	case typeCheckpoint:
		if c, err := parseCheckpoint(line); err == nil {
			v.line++
			v.checkpoint(c)
			return
		}
	}
	v.unreadable("it is not one that a gateway writes")
}

func (v *Verifier) unreadable(why string) {
	v.line++
	f := Finding{Kind: Unreadable, Line: v.line, Detail: why}
	if v.seg != nil {
		f.Segment, v.seg.foul = v.seg.header.Number, true
	}
	v.lost = v.seg == nil
	v.broken = true
	v.report.add(f)
}

func (v *Verifier) open(h Header) {
	if v.seg != nil {
		v.cut()
	}
	v.lost = false
	v.seg = &segment{header: h, line: v.line}
}

func (v *Verifier) row(r Row, sealed bool) {
	if v.seg == nil {
		v.outside(r, sealed)
		return
	}
	v.report.Rows++
	if !sealed {
		v.seg.foul, v.broken = true, true
		v.report.add(Finding{Kind: InsertedRow, Segment: v.seg.header.Number, Row: r.Seq, Line: v.line,
			Detail: "a row without a hash stands among sealed rows"})
		return
	}
	if len(v.seg.rows) == maxSegmentRows {
		v.seg.over++
		return
	}
	v.seg.rows = append(v.seg.rows, rowMark{
		seq: r.Seq, at: r.At.UnixMilli(), hash: r.Hash, content: contentOf(r.Cursor, r.Data), line: v.line,
	})
}

// outside takes a row that is in no segment: the rows behind the last checkpoint
// of an export, or an export that was filtered.
func (v *Verifier) outside(r Row, sealed bool) {
	v.report.Rows++
	if v.lost && sealed {
		return // it was said that its header is unreadable
	}
	v.report.Open++
	switch {
	case sealed:
		v.broken = true
		v.report.add(Finding{Kind: InsertedRow, Row: r.Seq, Line: v.line, Detail: "a sealed row stands outside any segment"})
	case !v.begun && !v.stray:
		v.stray, v.broken = true, true
	case v.begun && r.Seq != v.next.first+uint64(v.report.Open)-1:
		v.report.add(Finding{Kind: MissingRow, Row: r.Seq, Line: v.line,
			Detail: "the rows behind the last checkpoint are not numbered one after another"})
	}
}

// cut ends a segment that has no checkpoint.
func (v *Verifier) cut() {
	s := v.seg
	v.seg = nil
	v.report.Segments++
	v.broken = true
	v.report.add(Finding{Kind: Truncated, Segment: s.header.Number, Row: s.header.First, Line: s.line,
		Detail: "the segment has no checkpoint: its end is missing"})
	if v.begun && s.header.Scope != v.report.Scope {
		return
	}
	if !v.begun {
		v.begin(s)
	}
	v.next = place{number: s.header.Number + 1, first: s.header.First, prev: s.header.Prev}
	if n := len(s.rows); n > 0 {
		v.next.first, v.next.prev = s.rows[n-1].seq+1, s.rows[n-1].hash
	}
}

// Close says what the lines so far prove.
func (v *Verifier) Close() Report {
	if v.seg != nil {
		v.cut()
	}
	if v.stray && !v.begun {
		v.report.add(Finding{Kind: Filtered, Detail: "rows without segments: a filtered export, or rows that are not sealed yet; it proves nothing about what is missing"})
	}
	v.closeLater()
	return v.report
}

// closeLater holds the end of the log against the later checkpoint.
func (v *Verifier) closeLater() {
	c := v.later
	if c == nil {
		return
	}
	if err := c.Check(v.keys); err != nil {
		v.report.add(Finding{Kind: signatureKind(err), Segment: c.Segment, Detail: "the later checkpoint: " + err.Error()})
		return
	}
	switch {
	case v.begun && !c.of(ledger.Scope(v.report.Scope), v.report.Tenant):
		v.report.add(Finding{Kind: ForeignSegment, Segment: c.Segment, Detail: "the later checkpoint is of another log"})
	case v.marked:
	case !v.begun || c.Seq >= v.next.first:
		first := max(v.next.first, 1)
		v.report.add(Finding{Kind: Truncated, Row: first, To: c.Seq,
			Detail: fmt.Sprintf("the end is missing: the later checkpoint signs row %d", c.Seq)})
	case c.Seq < v.report.Begins:
		v.report.add(Finding{Kind: Truncated, Row: c.Seq, Detail: "the checkpoint given is from before the first row that is there"})
	default:
		v.report.add(Finding{Kind: Rewritten, Segment: c.Segment, Row: c.Seq, Detail: "the segment that the later checkpoint closes is not there"})
	}
}

func signatureKind(err error) string {
	if errors.Is(err, ErrUnknownKey) {
		return UnknownKey
	}
	return BadSignature
}
