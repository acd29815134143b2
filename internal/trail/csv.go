package trail

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
)

// columns are the names of a record's fields.
func columns() []string {
	return []string{
		"seq", "cursor", "at", "event", "tenant", "actor", "key_id", "front", "request_id", "trace_id",
		"action_id", "connection", "action", "identity", "key_source", "outcome", "reason",
		"vendor_status", "duration_ms", "subject", "changed", "meta", "unreadable",
	}
}

// record is a row's fields, in the order of columns.
func record(r archive.Row, e audit.Entry) []string {
	return []string{
		strconv.FormatUint(r.Seq, 10), r.Cursor, e.At.UTC().Format("2006-01-02T15:04:05.000Z"), string(e.Event), e.Tenant,
		e.Actor.Kind, e.Actor.KeyID, e.Front, e.RequestID, e.TraceID,
		e.ActionID, e.Connection, e.Action, e.Identity, e.KeySource, e.Outcome, e.Reason,
		number(int64(e.VendorStatus)), number(e.DurationMS), e.Subject, strings.Join(e.Changed, " "), labels(e.Meta), flag(e.Unreadable),
	}
}

func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func flag(b bool) string {
	if b {
		return "true"
	}
	return ""
}

// labels are one field, as JSON.
func labels(meta map[string]string) string {
	if len(meta) == 0 {
		return ""
	}
	text, _ := json.Marshal(meta) // a map of strings always encodes
	return string(text)
}

// appendRecord appends a record as RFC 4180 has it: every field in quotes, so
// that nothing in it ends it.
func appendRecord(dst []byte, fields ...string) []byte {
	for i, f := range fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = append(dst, strings.ReplaceAll(Harmless(f), `"`, `""`)...)
		dst = append(dst, '"')
	}
	return append(dst, '\r', '\n')
}

// Harmless keeps a spreadsheet from taking a text, or what it makes a cell of its
// own of, for a formula (OWASP, "CSV Injection"): in front of a character that
// begins one, at the beginning and behind whatever may end a cell, it puts an
// apostrophe. One that stands there already gets another, so that [Original] can
// undo it.
func Harmless(s string) string {
	if !strings.ContainsFunc(s, begins) {
		return s
	}
	var b strings.Builder
	fresh := true
	for i, r := range s {
		if fresh && begins(r) {
			b.WriteByte('\'')
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		b.WriteString(s[i : i+size]) // what is not UTF-8 stays as it is
		fresh = ends(r)
	}
	return b.String()
}

// Original undoes Harmless.
func Original(s string) string {
	var b strings.Builder
	fresh, taken := true, false
	for i, r := range s {
		if next, _ := utf8.DecodeRuneInString(s[i+min(1, len(s)-i):]); fresh && !taken && r == '\'' && begins(next) {
			taken = true
			continue
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		b.WriteString(s[i : i+size])
		fresh, taken = ends(r), false
	}
	return b.String()
}

// begins says whether a formula may begin with a character; those of the full
// width count where East Asian text is typed.
func begins(r rune) bool { return strings.ContainsRune("=+-@\t\r\n'＝＋－＠", r) }

// ends says whether a cell may end with a character: with some settings a
// spreadsheet splits at others than the comma. Blanks and what does not show are
// passed over in front of a formula.
func ends(r rune) bool {
	return r <= ' ' || strings.ContainsRune(",;|:\"\u007f", r) || unicode.IsSpace(r) || unicode.Is(unicode.Cf, r)
}
