package audit

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// rowVersion is the first member of every row. A release that changes the
// meaning of a member raises it; one that adds a member must too, as readers
// are strict.
const rowVersion = 1

// timeForm is RFC 3339 in UTC with exactly three digits of milliseconds, so
// that times sort as text.
const timeForm = "2006-01-02T15:04:05.000Z"

// Encode returns the row as one line of compact JSON without a line break, its
// members in a fixed order and empty ones left out, so that equal rows have
// equal bytes.
//
// It cannot fail: a row that could would either stop the change it tells of or
// be lost. What does not fit its place is cut or replaced, visibly.
func (r Row) Encode() []byte {
	e := encoder(make([]byte, 0, 512))
	e = strconv.AppendInt(append(e, `{"v":`...), rowVersion, 10)
	e.must("event", string(r.Event))
	e = append(e, `,"at":"`...)
	e = append(r.At.UTC().AppendFormat(e, timeForm), '"')
	e.word("tenant", r.Tenant)
	e = append(e, `,"actor":{"kind":"`...)
	e = append(append(e, word(r.Actor.Kind)...), '"')
	e.word("key_id", r.Actor.KeyID)
	e = append(e, '}')
	e.word("front", r.Front)
	e.word("request_id", r.RequestID)
	e.word("trace_id", r.TraceID)
	e.word("action_id", r.ActionID)
	e.word("connection", r.Connection)
	e.word("action", r.Action)
	e.word("identity", r.Identity)
	e.word("key_source", r.KeySource)
	e.word("outcome", r.Outcome)
	e.word("reason", r.Reason)
	e.number("vendor_status", int64(r.VendorStatus))
	e.number("duration_ms", r.DurationMS)
	e.word("subject", r.Subject)
	e.words("changed", r.Changed)
	e.meta(r.Meta)
	return append(e, '}')
}

// encoder appends members that follow another one.
type encoder []byte

func (e *encoder) must(name, value string) {
	*e = append(*e, `,"`...)
	*e = append(*e, name...)
	*e = append(*e, `":"`...)
	*e = append(*e, word(value)...) // words need no escapes
	*e = append(*e, '"')
}

func (e *encoder) word(name, value string) {
	if value != "" {
		e.must(name, value)
	}
}

func (e *encoder) number(name string, value int64) {
	if value > 0 {
		*e = append(*e, `,"`...)
		*e = append(*e, name...)
		*e = strconv.AppendInt(append(*e, `":`...), value, 10)
	}
}

func (e *encoder) words(name string, values []string) {
	if len(values) == 0 {
		return
	}
	*e = append(*e, `,"`...)
	*e = append(*e, name...)
	*e = append(*e, `":`...)
	open := byte('[')
	for _, v := range values[:min(len(values), maxChanged)] {
		*e = append(*e, open, '"')
		*e = append(append(*e, word(v)...), '"')
		open = ','
	}
	*e = append(*e, ']')
}

// meta writes the labels in the order of their names.
func (e *encoder) meta(labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	*e = append(*e, `,"meta":`...)
	names := slices.Sorted(maps.Keys(labels))
	clean := make(map[string]string, len(names))
	for _, name := range names[:min(len(names), MaxMeta)] {
		clean[label(name)] = label(labels[name])
	}
	// A map of strings always encodes; the package sorts its names.
	text, _ := json.Marshal(clean)
	*e = append(*e, text...)
}

// label cuts a text to MaxMetaBytes at a character's border and makes it valid
// UTF-8. The front refuses such labels before; this is the second fence.
func label(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxMetaBytes {
		return s
	}
	cut := MaxMetaBytes
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// parseTime reads what Encode writes and nothing else.
func parseTime(s string) (time.Time, bool) {
	t, err := time.Parse(timeForm, s)
	return t, err == nil && t.Format(timeForm) == s
}
