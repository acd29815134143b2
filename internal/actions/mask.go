package actions

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"sort"
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
	seen := map[string]bool{}
	var m mask
	add := func(v string) {
		if len(v) >= shortest && !seen[v] {
			seen[v] = true
			m.hidden = append(m.hidden, v)
		}
	}
	for _, v := range creds {
		add(v)
		add(url.QueryEscape(v))
		add(url.PathEscape(v))
		if quoted, err := json.Marshal(v); err == nil {
			add(string(quoted[1 : len(quoted)-1]))
		}
		add(base64.StdEncoding.EncodeToString([]byte(v)))
		add(base64.RawURLEncoding.EncodeToString([]byte(v)))
	}
	for user, u := range creds {
		for password, p := range creds {
			if user != password {
				add(base64.StdEncoding.EncodeToString([]byte(u + ":" + p))) // RFC 7617
			}
		}
	}
	// Longest first: a value that contains another is hidden whole.
	sort.Slice(m.hidden, func(i, j int) bool {
		if len(m.hidden[i]) != len(m.hidden[j]) {
			return len(m.hidden[i]) > len(m.hidden[j])
		}
		return m.hidden[i] < m.hidden[j]
	})
	return m
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
		if bytes.Contains(b, []byte(h)) {
			b = bytes.ReplaceAll(b, []byte(h), []byte(masked))
		}
	}
	return b
}

// json hides credentials in a JSON result. If that broke the JSON (a credential
// of digits inside a number), the result is left out rather than shown.
func (m mask) json(data []byte) *Answer {
	out := m.bytes(data)
	if len(m.hidden) > 0 && !json.Valid(out) {
		return &Answer{Kind: ResultOmitted, Reason: "credential_in_result", Bytes: int64(len(data))}
	}
	return &Answer{Kind: ResultJSON, Data: out}
}
