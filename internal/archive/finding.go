package archive

import "fmt"

// Kinds of findings.
const (
	ChangedRow     = "changed_row"     // a row is not what its hash was made from
	MissingRow     = "missing_row"     // a row was removed
	InsertedRow    = "inserted_row"    // a row that was never one of the log
	SwappedRows    = "swapped_rows"    // rows are in another order
	AlteredSegment = "altered_segment" // rows and hashes agree, but were not signed like this
	MissingSegment = "missing_segment" // a whole segment is not there
	StraySegment   = "stray_segment"   // a segment in another place, or a second time
	ForeignSegment = "foreign_segment" // a segment of another log: another tenant's
	UnknownKey     = "unknown_key"     // signed with a key that was not given
	BadSignature   = "bad_signature"   // the signature does not fit
	Unreadable     = "unreadable_line" // a line that no gateway wrote
	Truncated      = "truncated"       // the end is missing
	Rewritten      = "rewritten"       // not the log that the later checkpoint was signed for
	Filtered       = "filtered"        // rows without the segments they belong to
)

// Finding is one thing that is not as it was written, and where.
type Finding struct {
	Kind    string
	Segment uint64 // 0: not in a segment
	Row     uint64 // number of the first row meant; 0: no row in particular
	To      uint64 // and of the last one, if several
	Line    int    // in what was read, from 1; 0: at the end
	Detail  string
}

func (f Finding) String() string {
	s := f.Kind
	if f.Segment != 0 {
		s += fmt.Sprintf(" segment %d", f.Segment)
	}
	switch {
	case f.To > f.Row:
		s += fmt.Sprintf(" rows %d to %d", f.Row, f.To)
	case f.Row != 0:
		s += fmt.Sprintf(" row %d", f.Row)
	}
	if f.Line != 0 {
		s += fmt.Sprintf(" (line %d)", f.Line)
	}
	return s + ": " + f.Detail
}

// maxFindings bounds a report; a log that differs everywhere needs no full list.
const maxFindings = 100
