package apitest

import "strings"

// Refusal is a body of `do` that is refused whatever stands behind the API.
type Refusal struct {
	Name, Body string
	Code       string
	Pointers   []string // of errors
}

// Refusals are the bodies that no front may take, whichever way they come: over
// REST as a body, over MCP as arguments.
func Refusals() []Refusal {
	const pair = `"connection":"c","action":"a"`
	seventeen := `{` + pair + `,"meta":{` + strings.TrimSuffix(strings.Repeat(`"k%":"v",`, 17), ",") + `}}`
	for i := range 17 {
		seventeen = strings.Replace(seventeen, "%", string(rune('a'+i)), 1)
	}
	long := strings.Repeat("x", 257)
	return []Refusal{
		{Name: "blank body", Body: " ", Code: "invalid_json", Pointers: []string{""}},
		{Name: "cut", Body: `{"connection":"c"`, Code: "invalid_json", Pointers: []string{""}},
		{Name: "two values", Body: `{` + pair + `}{}`, Code: "invalid_json", Pointers: []string{""}},
		{Name: "byte-order mark", Body: "\xef\xbb\xbf{" + pair + "}", Code: "invalid_json", Pointers: []string{""}},
		{Name: "not UTF-8", Body: "{" + pair + ",\"body\":{\"a\":\"\xff\"}}", Code: "invalid_json", Pointers: []string{"/body/a"}},
		{Name: "null", Body: `null`, Code: "invalid_request", Pointers: []string{""}},
		{Name: "array", Body: `[]`, Code: "invalid_request", Pointers: []string{""}},
		{Name: "no connection", Body: `{"action":"a"}`, Code: "invalid_request", Pointers: []string{"/connection"}},
		{Name: "nothing", Body: `{}`, Code: "invalid_request", Pointers: []string{"/connection", "/action"}},
		{Name: "empty action", Body: `{"connection":"c","action":""}`, Code: "invalid_request", Pointers: []string{"/action"}},
		{Name: "null connection", Body: `{"connection":null,"action":"a"}`, Code: "invalid_request", Pointers: []string{"/connection"}},
		{Name: "number as connection", Body: `{"connection":1,"action":"a"}`, Code: "invalid_request", Pointers: []string{"/connection"}},
		{Name: "unknown members", Body: `{` + pair + `,"x":1,"y/z":2}`, Code: "invalid_request", Pointers: []string{"/x", "/y~1z"}},
		{Name: "other case", Body: `{"Connection":"c","action":"a"}`, Code: "invalid_request", Pointers: []string{"/Connection"}},
		{Name: "duplicate", Body: `{` + pair + `,"action":"b"}`, Code: "invalid_request", Pointers: []string{"/action"}},
		{Name: "duplicate escaped", Body: `{` + pair + `,"a\u0063tion":"b"}`, Code: "invalid_request", Pointers: []string{"/action"}},
		{Name: "duplicate body", Body: `{` + pair + `,"body":{},"body":{}}`, Code: "invalid_request", Pointers: []string{"/body"}},
		{Name: "duplicate in body", Body: `{` + pair + `,"body":{"a":1,"a":1}}`, Code: "invalid_body", Pointers: []string{"/body/a"}},
		{Name: "inexact number", Body: `{` + pair + `,"body":{"a":9007199254740993}}`, Code: "invalid_body", Pointers: []string{"/body/a"}},
		{Name: "lone surrogate", Body: `{` + pair + `,"body":{"a":"\ud800"}}`, Code: "invalid_body", Pointers: []string{"/body/a"}},
		{Name: "null body", Body: `{` + pair + `,"body":null}`, Code: "invalid_body", Pointers: []string{"/body"}},
		{Name: "array body", Body: `{` + pair + `,"body":[1]}`, Code: "invalid_body", Pointers: []string{"/body"}},
		{Name: "string body", Body: `{` + pair + `,"body":"{}"}`, Code: "invalid_body", Pointers: []string{"/body"}},
		{Name: "string as flag", Body: `{` + pair + `,"dry_run":"true"}`, Code: "invalid_request", Pointers: []string{"/dry_run"}},
		{Name: "null flag", Body: `{` + pair + `,"retry_refused":null}`, Code: "invalid_request", Pointers: []string{"/retry_refused"}},
		{Name: "meta of numbers", Body: `{` + pair + `,"meta":{"a":1}}`, Code: "invalid_request", Pointers: []string{"/meta/a"}},
		{Name: "null meta", Body: `{` + pair + `,"meta":null}`, Code: "invalid_request", Pointers: []string{"/meta"}},
		{Name: "too many labels", Body: seventeen, Code: "invalid_request", Pointers: []string{"/meta"}},
		{Name: "long label", Body: `{` + pair + `,"meta":{"a":"` + long + `"}}`, Code: "invalid_request", Pointers: []string{"/meta"}},
		{Name: "long label name", Body: `{` + pair + `,"meta":{"` + long + `":"a"}}`, Code: "invalid_request", Pointers: []string{"/meta"}},
		{Name: "null key", Body: `{` + pair + `,"idempotency_key":null}`, Code: "invalid_request", Pointers: []string{"/idempotency_key"}},
		{Name: "empty key", Body: `{` + pair + `,"idempotency_key":""}`, Code: "invalid_key", Pointers: []string{"/idempotency_key"}},
		{Name: "blank key", Body: `{` + pair + `,"idempotency_key":" a"}`, Code: "invalid_key", Pointers: []string{"/idempotency_key"}},
		{Name: "key not ASCII", Body: `{` + pair + `,"idempotency_key":"é"}`, Code: "invalid_key", Pointers: []string{"/idempotency_key"}},
		{Name: "long key", Body: `{` + pair + `,"idempotency_key":"` + strings.Repeat("k", 256) + `"}`, Code: "invalid_key", Pointers: []string{"/idempotency_key"}},
	}
}
