package audit

import (
	"bytes"
	"unicode/utf8"
)

// regular says whether data is, byte for byte, what Encode writes for the row
// that Decode reads from it. It is for looking past rows at a small part of the
// price of Decode and may be wrong in one direction only: some rows that Encode
// writes, such as those with escapes in a label, are not regular.
func regular(data []byte) bool {
	s := scanner(data)
	if !s.skip(`{"v":1,"event":"`) || !s.word(1) || !s.skip(`,"at":"`) || !s.time() {
		return false
	}
	s.member(`,"tenant":"`)
	if !s.skip(`,"actor":{"kind":"`) || !s.word(0) {
		return false
	}
	s.member(`,"key_id":"`)
	if !s.skip(`}`) {
		return false
	}
	for _, name := range [...]string{
		`,"front":"`, `,"request_id":"`, `,"trace_id":"`, `,"action_id":"`, `,"connection":"`,
		`,"action":"`, `,"identity":"`, `,"key_source":"`, `,"outcome":"`, `,"reason":"`,
	} {
		s.member(name)
	}
	s.number(`,"vendor_status":`)
	s.number(`,"duration_ms":`)
	s.member(`,"subject":"`)
	s.words(`,"changed":[`)
	s.labels(`,"meta":{`)
	return string(s) == `}`
}

// scanner is what is left of a row. A part that is not as it should be empties
// it, so that no later part is found.
type scanner []byte

func (s *scanner) fail() { *s = nil }

func (s *scanner) skip(text string) bool {
	if len(*s) < len(text) || string((*s)[:len(text)]) != text {
		return false
	}
	*s = (*s)[len(text):]
	return true
}

// word takes a word of at least least bytes and the quote behind it.
func (s *scanner) word(least int) bool {
	for i, c := range (*s)[:min(len(*s), MaxWord+1)] {
		if c == '"' {
			*s = (*s)[i+1:]
			return i >= least
		}
		if c <= ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return false
}

// member takes a member that holds a word, if it is there.
func (s *scanner) member(name string) {
	if s.skip(name) && !s.word(1) {
		s.fail()
	}
}

// number takes a member that holds a number of at most 15 digits, which every
// reader of JSON reads alike.
func (s *scanner) number(name string) {
	if !s.skip(name) {
		return
	}
	n := 0
	for n < len(*s) && (*s)[n] >= '0' && (*s)[n] <= '9' {
		n++
	}
	if n == 0 || n > 15 || (*s)[0] == '0' {
		s.fail()
		return
	}
	*s = (*s)[n:]
}

func (s *scanner) words(name string) {
	if !s.skip(name) {
		return
	}
	for n := 1; n <= maxChanged && s.skip(`"`) && s.word(0); n++ {
		if s.skip(`]`) {
			return
		}
		if !s.skip(`,`) {
			break
		}
	}
	s.fail()
}

// labels takes labels in the order of their names, each once.
func (s *scanner) labels(name string) {
	if !s.skip(name) {
		return
	}
	var last []byte
	for n := 1; n <= MaxMeta && s.skip(`"`); n++ {
		label, ok := s.label()
		if !ok || n > 1 && bytes.Compare(last, label) >= 0 || !s.skip(`:"`) {
			break
		}
		last = label
		if _, ok = s.label(); !ok {
			break
		}
		if s.skip(`}`) {
			return
		}
		if !s.skip(`,`) {
			break
		}
	}
	s.fail()
}

// label takes a text that is written without escapes and the quote behind it.
func (s *scanner) label() ([]byte, bool) {
	ascii := true
	for i, c := range (*s)[:min(len(*s), MaxMetaBytes+1)] {
		switch {
		case c == '"':
			text := (*s)[:i]
			*s = (*s)[i+1:]
			return text, ascii || unescaped(text)
		case c < ' ' || c == '\\' || c == '<' || c == '>' || c == '&': // these are written as escapes
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
}

// unescaped says whether a text beyond ASCII is written as it is: the encoder
// escapes the two line breaks that JavaScript once could not have in a string.
func unescaped(text []byte) bool {
	return utf8.Valid(text) && !bytes.Contains(text, []byte("\u2028")) && !bytes.Contains(text, []byte("\u2029"))
}

// time takes a time and the quote behind it.
func (s *scanner) time() bool {
	const form = "0000-00-00T00:00:00.000Z\""
	if len(*s) < len(form) {
		return false
	}
	t := (*s)[:len(form)]
	for i := range len(form) {
		if form[i] != '0' && t[i] != form[i] || form[i] == '0' && (t[i] < '0' || t[i] > '9') {
			return false
		}
	}
	*s = (*s)[len(form):]
	two := func(i int) int { return int(t[i]-'0')*10 + int(t[i+1]-'0') }
	if two(11) > 23 || two(14) > 59 || two(17) > 59 || two(5) < 1 || two(5) > 12 || two(8) < 1 {
		return false
	}
	if two(8) <= 28 {
		return true
	}
	_, ok := parseTime(string(t[:len(form)-1]))
	return ok
}
