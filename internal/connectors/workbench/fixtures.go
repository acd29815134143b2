package workbench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/manifest"
)

// Fixtures are the examples of one connector, by action.
type Fixtures struct {
	Actions map[string]ActionFixtures `json:"actions"`
	Test    *TestFixtures             `json:"test"`

	file  string
	lines map[string]int
}

// ActionFixtures are the examples of one action.
type ActionFixtures struct {
	Params  json.RawMessage `json:"params"` // what the agent says; {} if absent
	Config  json.RawMessage `json:"config"` // of the connection; {} if absent
	BaseURL string          `json:"base_url"`

	Request *RequestFixture `json:"request"` // what must be sent; nil: anything
	Answers []AnswerFixture `json:"answers"`
	Lookups []LookupFixture `json:"lookups"`
}

// TestFixtures are the examples of the test call.
type TestFixtures struct {
	Config  json.RawMessage `json:"config"` // of the connection; {} if absent
	BaseURL string          `json:"base_url"`

	Request *RequestFixture     `json:"request"`
	Answers []TestAnswerFixture `json:"answers"`
}

// TestAnswerFixture is an answer to the test call, and whether it is that of a
// connection that works.
type TestAnswerFixture struct {
	answer

	Name   string `json:"name"`
	Passes bool   `json:"passes"`
}

// RequestFixture is what Plan must give. Of the headers, only those named are
// compared. Body is JSON, or Text any other.
type RequestFixture struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	Text    *string           `json:"text"`
}

// answer is what the vendor answers. A Body is JSON, sent as application/json
// unless headers say otherwise; Text is sent as it stands.
type answer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	Body    json.RawMessage   `json:"body"`
	Text    string            `json:"text"`
}

// AnswerFixture is an answer and what must be made of it. Code, message,
// reason, retry_after and result are compared if they are given.
type AnswerFixture struct {
	answer

	Name    string          `json:"name"`
	Params  json.RawMessage `json:"params"`  // instead of the action's
	Request *RequestFixture `json:"request"` // for these params

	Outcome    connectors.Outcome `json:"outcome"`
	Code       *string            `json:"code"`
	Message    *string            `json:"message"`
	Reason     connectors.Reason  `json:"reason"`
	RetryAfter string             `json:"retry_after"` // as Go writes a duration: 3s
	Result     json.RawMessage    `json:"result"`
}

// LookupFixture is the answer to a check's look-up and what it must show.
type LookupFixture struct {
	answer

	Name   string               `json:"name"`
	Step   int                  `json:"step"` // index in check; a resend counts too
	Params json.RawMessage      `json:"params"`
	URL    string               `json:"url"` // of the look-up; "": any
	Found  connectors.FoundKind `json:"found"`
	Result json.RawMessage      `json:"result"`
}

// What fixtures are planned with. ${marker}, ${vendor_key} and ${started_unix}
// in a fixture stand for them.
const (
	Marker  = "0123456789abcdef0123456789abcdef"
	started = 1777863721 // 2026-05-04T03:02:01Z
)

// ReadFixtures reads a file of fixtures. The error is a
// *connectors.ManifestError.
func ReadFixtures(file string, raw []byte) (*Fixtures, error) {
	doc, lines, err := manifest.ReadYAML(raw)
	if err != nil {
		return nil, err
	}
	f := &Fixtures{file: file, lines: lines}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	if err := d.Decode(f); err != nil {
		reason := strings.TrimPrefix(err.Error(), "json: ")
		return nil, &connectors.ManifestError{Problems: []connectors.ManifestProblem{{Line: lineOfMember(lines, reason), Reason: "this does not look like fixtures: " + reason}}}
	}
	return f, nil
}

// lineOfMember finds a member that an error of encoding/json names.
func lineOfMember(lines map[string]int, reason string) int {
	parts := strings.Split(reason, `"`)
	if len(parts) < 3 {
		return 0
	}
	least := 0
	for pointer, line := range lines {
		if strings.HasSuffix(pointer, "/"+parts[1]) && (least == 0 || line < least) {
			least = line
		}
	}
	return least
}

func (f *Fixtures) finding(pointer, format string, args ...any) Finding {
	return Finding{File: f.file, Line: lineOf(f.lines, pointer), Pointer: pointer, Reason: fmt.Sprintf(format, args...)}
}

// sameJSON compares two JSON texts by their members and the digits of their
// numbers, not by blanks or order of members.
func sameJSON(a, b []byte) bool {
	var x, y any
	for raw, into := range map[*[]byte]*any{&a: &x, &b: &y} {
		d := json.NewDecoder(bytes.NewReader(*raw))
		d.UseNumber()
		if d.Decode(into) != nil {
			return false
		}
	}
	return equal(x, y)
}

func equal(x, y any) bool {
	switch a := x.(type) {
	case map[string]any:
		b, ok := y.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name := range a {
			other, ok := b[name]
			if !ok || !equal(a[name], other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := y.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	default:
		return x == y
	}
}

// orObject is a JSON object that may be absent.
func orObject(raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return []byte("{}")
	}
	return raw
}
