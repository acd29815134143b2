package api

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// timeForm is RFC 3339 in UTC with milliseconds, the precision of the store.
const timeForm = "2006-01-02T15:04:05.000Z07:00"

func formatTime(t time.Time) string { return t.UTC().Format(timeForm) }

// object writes one JSON object, member after member. It exists because a
// vendor's answer must pass through byte for byte, and encoding/json compacts
// and escapes even what it is given raw.
type object struct{ buf []byte }

func newObject(size int) *object {
	return &object{buf: append(make([]byte, 0, size), '{')}
}

// bytes ends the object and returns it.
func (o *object) bytes() []byte { return append(o.buf, '}') }

func (o *object) name(name string) {
	if o.buf[len(o.buf)-1] != '{' {
		o.buf = append(o.buf, ',')
	}
	o.buf = append(appendText(o.buf, name), ':')
}

// raw writes a value that is JSON already, untouched.
func (o *object) raw(name string, value []byte) {
	o.name(name)
	o.buf = append(o.buf, value...)
}

func (o *object) text(name, value string) {
	o.name(name)
	o.buf = appendText(o.buf, value)
}

// some writes a text unless it is empty.
func (o *object) some(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

func (o *object) number(name string, value int64) {
	o.name(name)
	o.buf = strconv.AppendInt(o.buf, value, 10)
}

func (o *object) flag(name string, value bool) {
	o.name(name)
	o.buf = strconv.AppendBool(o.buf, value)
}

// time writes a time unless it is zero.
func (o *object) time(name string, value time.Time) {
	if !value.IsZero() {
		o.name(name)
		o.buf = append(value.UTC().AppendFormat(append(o.buf, '"'), timeForm), '"')
	}
}

func (o *object) object(name string, fill func(*object)) {
	o.name(name)
	o.nested(fill)
}

func (o *object) nested(fill func(*object)) {
	inner := object{buf: append(o.buf, '{')}
	fill(&inner)
	o.buf = inner.bytes()
}

// list writes an array of n objects.
func (o *object) list(name string, n int, fill func(i int, item *object)) {
	o.name(name)
	o.buf = append(o.buf, '[')
	for i := range n {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.nested(func(item *object) { fill(i, item) })
	}
	o.buf = append(o.buf, ']')
}

// texts writes an array of strings.
func (o *object) texts(name string, values []string) {
	o.name(name)
	o.buf = append(o.buf, '[')
	for i, v := range values {
		if i > 0 {
			o.buf = append(o.buf, ',')
		}
		o.buf = appendText(o.buf, v)
	}
	o.buf = append(o.buf, ']')
}

// appendText appends s as a JSON string. Most of what is written is plain
// ASCII, which needs no encoder.
func appendText(dst []byte, s string) []byte {
	for i := range len(s) {
		if b := s[i]; b < ' ' || b == '"' || b == '\\' || b >= utf8.RuneSelf {
			return append(dst, encodeText(s)...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// encodeText leaves <, > and & alone: an agent reads the text, no browser does.
// What is not UTF-8 becomes U+FFFD.
func encodeText(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// members copies the members of an object that is encoded already.
func (o *object) members(encoded []byte) {
	if len(encoded) <= len("{}") {
		return
	}
	if o.buf[len(o.buf)-1] != '{' {
		o.buf = append(o.buf, ',')
	}
	o.buf = append(o.buf, encoded[1:len(encoded)-1]...)
}
