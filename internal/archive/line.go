package archive

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// segmentVersion is the version of the line forms below.
const segmentVersion = 1

// timeForm is RFC 3339 in UTC with exactly three digits of milliseconds.
const timeForm = "2006-01-02T15:04:05.000Z"

// Kinds of lines, the first member of each.
const (
	typeSegment    = "segment"
	typeRow        = "row"
	typeCheckpoint = "checkpoint"
)

// Header opens a segment.
type Header struct {
	Type   string  `json:"type"` // segment
	V      int     `json:"v"`
	Tenant string  `json:"tenant"` // "" for the platform
	Scope  ScopeID `json:"scope"`
	Number uint64  `json:"number"` // of the segment, from 1
	First  uint64  `json:"first"`  // number of its first row
	Prev   Hash    `json:"prev"`   // hash of the row before it
	From   Time    `json:"from"`   // the store's time of its first row
}

// Time is a time to the millisecond, written in one form.
type Time struct{ time.Time }

// MarshalJSON writes RFC 3339 in UTC with three digits of milliseconds.
func (t Time) MarshalJSON() ([]byte, error) {
	return append(t.UTC().AppendFormat([]byte{'"'}, timeForm), '"'), nil
}

// UnmarshalJSON accepts only what MarshalJSON writes.
func (t *Time) UnmarshalJSON(text []byte) error {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return errLine
	}
	parsed, ok := parseTime(text[1 : len(text)-1])
	if !ok {
		return errLine
	}
	t.Time = parsed
	return nil
}

func parseTime(text []byte) (time.Time, bool) {
	t, err := time.Parse(timeForm, string(text))
	return t, err == nil && t.Format(timeForm) == string(text)
}

// errLine means a line that no gateway wrote.
var errLine = errors.New("not a line of an audit log")

// Line returns the line of the header, with its line break.
func (h Header) Line() []byte { return lineOf(h) }

// lineOf encodes a struct of texts and numbers, which cannot fail.
func lineOf(v any) []byte {
	line, _ := json.Marshal(v)
	return append(line, '\n')
}

// parseHeader reads a line without its line break. One that Line would not have
// written, byte for byte, is refused, so that no byte can change unnoticed.
func parseHeader(line []byte) (Header, error) {
	var h Header
	if json.Unmarshal(line, &h) != nil || h.Type != typeSegment || h.V != segmentVersion || h.Number == 0 || h.First == 0 || !same(line, h.Line()) {
		return Header{}, errLine
	}
	return h, nil
}

func same(line, withBreak []byte) bool {
	return bytes.Equal(line, withBreak[:len(withBreak)-1])
}

// Row is a row in a segment.
type Row struct {
	ledger.Row
	Seq  uint64
	Hash Hash // zero in a row that is not sealed yet
}

const (
	rowHead   = `{"type":"row","seq":`
	rowAt     = `,"at":"`
	rowCursor = `","cursor":"`
	rowHash   = `","hash":"`
	rowPlain  = `","row":`
	rowRaw    = `","raw_base64":"`
)

// SealedLine returns the line of a sealed row, with its line break.
func (r Row) SealedLine() []byte { return r.line(true) }

// OpenLine returns the line of a row that is not sealed yet: it has no hash.
func (r Row) OpenLine() []byte { return r.line(false) }

func (r Row) line(sealed bool) []byte {
	_, err := audit.Decode(r.Data)
	return r.appendLine(make([]byte, 0, len(r.Data)+len(r.Cursor)+200), sealed, err == nil)
}

// appendLine is told whether the row can be read, which decides the form it takes.
func (r Row) appendLine(b []byte, sealed, readable bool) []byte {
	b = strconv.AppendUint(append(b, rowHead...), r.Seq, 10)
	b = r.At.UTC().AppendFormat(append(b, rowAt...), timeForm)
	b = append(append(b, rowCursor...), r.Cursor...)
	if sealed {
		b = hex.AppendEncode(append(b, rowHash...), r.Hash[:])
	}
	if readable {
		b = append(append(b, rowPlain...), r.Data...)
	} else {
		b = base64.StdEncoding.AppendEncode(append(b, rowRaw...), r.Data)
		b = append(b, '"')
	}
	return append(b, '}', '\n')
}

// cursorFits: a cursor is printable ASCII by contract; in a line it must not end
// its own quotes.
func cursorFits(cursor string) bool {
	for i := range len(cursor) {
		if c := cursor[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return cursor != ""
}

// parseRow reads a line without its line break. Data is part of the line.
func parseRow(line []byte) (r Row, sealed bool, err error) {
	rest, ok := bytes.CutPrefix(line, []byte(rowHead))
	digits, rest, ok1 := bytes.Cut(rest, []byte(rowAt))
	at, rest, ok2 := bytes.Cut(rest, []byte(rowCursor))
	cursor, rest, ok3 := bytes.Cut(rest, []byte(`"`))
	if !ok || !ok1 || !ok2 || !ok3 || !cursorFits(string(cursor)) {
		return Row{}, false, errLine
	}
	r.Cursor = string(cursor)
	r.Seq, err = strconv.ParseUint(string(digits), 10, 64)
	if err != nil || strconv.FormatUint(r.Seq, 10) != string(digits) || r.Seq == 0 {
		return Row{}, false, errLine
	}
	if r.At, ok = parseTime(at); !ok {
		return Row{}, false, errLine
	}
	if after, is := bytes.CutPrefix(rest, []byte(rowHash[1:])); is {
		const digits = 2 * len(Hash{})
		if len(after) <= digits || r.Hash.UnmarshalText(after[:digits]) != nil || after[digits] != '"' {
			return Row{}, false, errLine
		}
		sealed, rest = true, after[digits+1:]
	}
	r.Data, err = parseData(rest)
	return r, sealed, err
}

// parseData reads the end of a row's line, behind the quote of the member before.
func parseData(rest []byte) ([]byte, error) {
	if data, is := bytes.CutPrefix(rest, []byte(rowPlain[1:])); is {
		end := len(data) - 1
		if end < 2 || data[end] != '}' || data[0] != '{' || data[end-1] != '}' {
			return nil, errLine
		}
		return data[:end], nil
	}
	text, is := bytes.CutPrefix(rest, []byte(rowRaw[1:]))
	text, whole := bytes.CutSuffix(text, []byte(`"}`))
	if !is || !whole {
		return nil, errLine
	}
	data, err := base64.StdEncoding.Strict().AppendDecode([]byte{}, text)
	if err != nil || bytes.ContainsAny(text, "\r\n") {
		return nil, errLine
	}
	// A row that can be read is never written like this: base64 would hide it from
	// whoever looks for it in the lines. (The other way round is let pass: a row of
	// a newer release is one that this one cannot read.)
	if _, err := audit.Decode(data); err == nil {
		return nil, errLine
	}
	return data, nil
}

// kindOf says what a line claims to be.
func kindOf(line []byte) string {
	for _, kind := range []string{typeRow, typeSegment, typeCheckpoint} {
		if bytes.HasPrefix(line, []byte(`{"type":"`+kind+`",`)) {
			return kind
		}
	}
	return ""
}
