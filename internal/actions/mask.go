package actions

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// mask hides a connection's credentials, by value, wherever a vendor echoes
// them: as they are, and in the spellings a body or a header would use.
type mask struct {
	hidden []string
}

const masked = "[redacted]"

// shortest is the length from which a value is hidden. Hiding shorter ones
// would tear up ordinary words and digits, and no vendor's secret is so short.
const shortest = 6

func newMask(creds map[string]string) mask {
	var m mask
	add := func(v string) {
		if len(v) >= shortest {
			m.hidden = append(m.hidden, v)
		}
	}
	add64 := func(v string) {
		standard := base64.StdEncoding.EncodeToString([]byte(v))
		forURLs := strings.ReplaceAll(strings.ReplaceAll(standard, "+", "-"), "/", "_") // RFC 4648 section 5
		for _, encoded := range []string{standard, forURLs} {
			add(encoded)
			add(strings.TrimRight(encoded, "="))
		}
	}
	for _, v := range creds {
		if len(v) < shortest {
			continue
		}
		add(v)
		for _, escaped := range []string{url.QueryEscape(v), url.PathEscape(v)} {
			add(escaped)
			add(lowerPercent(escaped))
		}
		add(html.EscapeString(v))
		inside := inJSON(v)
		add(inside)
		add(strings.ReplaceAll(inside, "/", `\/`)) // as PHP writes it
		add64(v)
	}
	for user, u := range creds {
		for password, p := range creds {
			if user != password {
				add64(u + ":" + p) // RFC 7617
			}
		}
	}
	// Longest first: a value that contains another is hidden whole.
	slices.SortFunc(m.hidden, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	m.hidden = slices.Compact(m.hidden) // most spellings of most values are the same
	return m
}

// inJSON is what encoding/json writes between the quotes of a string.
func inJSON(v string) string {
	if plainInJSON(v) {
		return v
	}
	quoted, _ := json.Marshal(v) // a string always encodes
	return string(quoted[1 : len(quoted)-1])
}

// lowerPercent writes the digits of percent-encodings in lower case, which is
// equivalent (RFC 3986 section 6.2.2.1).
func lowerPercent(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

func (m mask) text(s string) string {
	for _, h := range m.hidden {
		s = strings.ReplaceAll(s, h, masked)
	}
	return s
}

// bytes leaves the input alone and copies only where something is hidden.
func (m mask) bytes(b []byte) []byte {
	for _, h := range m.hidden {
		if pattern := []byte(h); bytes.Contains(b, pattern) {
			b = bytes.ReplaceAll(b, pattern, []byte(masked))
		}
	}
	return b
}

// json hides credentials in a result that should be JSON.
func (m mask) json(data []byte) *Answer {
	if !soundJSON(data) {
		return &Answer{Kind: ResultOmitted, Reason: "not_json", Bytes: int64(len(data))}
	}
	return m.sound(data)
}

// sound hides credentials in a result that is JSON. If that broke the JSON (a
// credential of digits inside a number), the result is left out rather than shown.
func (m mask) sound(data []byte) *Answer {
	out := m.bytes(data)
	if !bytes.Equal(out, data) && !soundJSON(out) {
		return &Answer{Kind: ResultOmitted, Reason: "credential_in_result", Bytes: int64(len(data))}
	}
	return &Answer{Kind: ResultJSON, Data: m.escaped(out)}
}

// escaped hides what stands in the strings of valid JSON in yet another
// spelling: any character may be escaped, so what counts is what a string says.
// Strings that say nothing hidden keep their bytes.
func (m mask) escaped(data []byte) []byte {
	if len(m.hidden) == 0 || bytes.IndexByte(data, '\\') < 0 {
		return data
	}
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		start := bytes.IndexByte(data, '"')
		if start < 0 {
			break
		}
		end := stringEnd(data, start)
		out = append(append(out, data[:start]...), m.token(data[start:end])...)
		data = data[end:]
	}
	return append(out, data...)
}

// token is one JSON string with its quotes.
func (m mask) token(raw []byte) []byte {
	var said string
	if bytes.IndexByte(raw, '\\') < 0 || json.Unmarshal(raw, &said) != nil {
		return raw
	}
	shown := m.text(said)
	if shown == said {
		return raw
	}
	quoted, err := json.Marshal(shown)
	if err != nil { // cannot happen: a string always encodes
		return []byte(`"` + masked + `"`)
	}
	return quoted
}

// stringEnd is the offset behind the string of valid JSON that starts at i.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data) && data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(data))
}
