package audit

import (
	"strings"
	"time"
	"unicode/utf8"
)

// regular reads data if it is, byte for byte, what Encode writes for the row it
// returns. It costs a small part of what strict reading of any JSON does and may
// be wrong in one direction only: some rows that Encode writes, such as those
// with escapes in a label, are not regular and left to Decode's slow way.
//
// The texts of the row share data.
func regular(data string) (r Row, ok bool) {
	s := scanner{left: data}
	s.skip(`{"v":1,"event":"`)
	r.Event = Event(s.word(1))
	s.skip(`,"at":"`)
	r.At = s.time()
	r.Tenant = s.member(`,"tenant":"`)
	s.skip(`,"actor":{"kind":"`)
	r.Actor.Kind = s.word(0)
	r.Actor.KeyID = s.member(`,"key_id":"`)
	s.skip(`}`)
	r.Front = s.member(`,"front":"`)
	r.RequestID = s.member(`,"request_id":"`)
	r.TraceID = s.member(`,"trace_id":"`)
	r.ActionID = s.member(`,"action_id":"`)
	r.Connection = s.member(`,"connection":"`)
	r.Action = s.member(`,"action":"`)
	r.Identity = s.member(`,"identity":"`)
	r.KeySource = s.member(`,"key_source":"`)
	r.Outcome = s.member(`,"outcome":"`)
	r.Reason = s.member(`,"reason":"`)
	r.VendorStatus = int(s.number(`,"vendor_status":`))
	r.DurationMS = s.number(`,"duration_ms":`)
	r.Subject = s.member(`,"subject":"`)
	r.Changed = s.words(`,"changed":[`)
	r.Meta = s.labels(`,"meta":{`)
	return r, !s.failed && s.left == `}`
}

// scanner takes a row apart. Once a part is not as it should be, no later one is
// found.
type scanner struct {
	left   string
	failed bool
}

func (s *scanner) fail() {
	s.left, s.failed = "", true
}

// at takes a text if it comes next.
func (s *scanner) at(text string) bool {
	if !strings.HasPrefix(s.left, text) {
		return false
	}
	s.left = s.left[len(text):]
	return true
}

// skip takes a text that must come next.
func (s *scanner) skip(text string) {
	if !s.at(text) {
		s.fail()
	}
}

// word takes a word of at least least bytes and the quote behind it.
func (s *scanner) word(least int) string {
	for i := range min(len(s.left), MaxWord+1) {
		c := s.left[i]
		if c == '"' && i >= least {
			word := s.left[:i]
			s.left = s.left[i+1:]
			return word
		}
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			break
		}
	}
	s.fail()
	return ""
}

// member takes a member that holds a word, if it is there.
func (s *scanner) member(name string) string {
	if !s.at(name) {
		return ""
	}
	return s.word(1)
}

// number takes a member that holds a number of at most 15 digits, which every
// reader of JSON reads alike.
func (s *scanner) number(name string) (value int64) {
	if !s.at(name) {
		return 0
	}
	n := 0
	for ; n < len(s.left) && s.left[n] >= '0' && s.left[n] <= '9'; n++ {
		if n == 15 || s.left[0] == '0' {
			s.fail()
			return 0
		}
		value = value*10 + int64(s.left[n]-'0')
	}
	if n == 0 {
		s.fail()
	}
	s.left = s.left[n:]
	return value
}

func (s *scanner) words(name string) (words []string) {
	if !s.at(name) {
		return nil
	}
	for len(words) < maxChanged {
		s.skip(`"`)
		words = append(words, s.word(0))
		if s.at(`]`) {
			return words
		}
		s.skip(`,`)
		if s.failed {
			return nil
		}
	}
	s.fail()
	return nil
}

// labels takes labels in the order of their names, each once.
func (s *scanner) labels(name string) map[string]string {
	if !s.at(name) {
		return nil
	}
	labels, last := map[string]string{}, ""
	for n := range MaxMeta {
		s.skip(`"`)
		name := s.label()
		if n > 0 && name <= last {
			break
		}
		last = name
		s.skip(`:"`)
		labels[name] = s.label()
		if s.at(`}`) {
			return labels
		}
		s.skip(`,`)
		if s.failed {
			return nil
		}
	}
	s.fail()
	return nil
}

// label takes a text that is written without escapes and the quote behind it.
func (s *scanner) label() string {
	ascii := true
	for i := range min(len(s.left), MaxMetaBytes+1) {
		c := s.left[i]
		if c == '"' {
			text := s.left[:i]
			s.left = s.left[i+1:]
			if !ascii && !unescaped(text) {
				s.fail()
			}
			return text
		}
		if c < ' ' || c == '\\' || c == '<' || c == '>' || c == '&' { // these are written as escapes
			break
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	s.fail()
	return ""
}

// unescaped says whether a text beyond ASCII is written as it is: the encoder
// escapes the two line breaks that JavaScript once could not have in a string.
func unescaped(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsAny(text, "\u2028\u2029")
}

// time takes a time and the quote behind it.
func (s *scanner) time() time.Time {
	const form = "0000-00-00T00:00:00.000Z"
	if len(s.left) <= len(form) || s.left[len(form)] != '"' {
		s.fail()
		return time.Time{}
	}
	t := s.left[:len(form)]
	s.left = s.left[len(form)+1:]
	for i := range len(form) {
		if form[i] != '0' && t[i] != form[i] || form[i] == '0' && (t[i] < '0' || t[i] > '9') {
			s.fail()
			return time.Time{}
		}
	}
	two := func(i int) int { return int(t[i]-'0')*10 + int(t[i+1]-'0') }
	year, month, day := two(0)*100+two(2), two(5), two(8)
	hour, minute, second, milli := two(11), two(14), two(17), two(20)*10+int(t[22]-'0')
	at := time.Date(year, time.Month(month), day, hour, minute, second, milli*int(time.Millisecond), time.UTC)
	// A month, day or hour that does not exist makes another time.
	if month != int(at.Month()) || day != at.Day() || hour != at.Hour() || minute != at.Minute() || second != at.Second() {
		s.fail()
	}
	return at
}
