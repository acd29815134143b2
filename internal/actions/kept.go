package actions

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"unicode/utf8"

	"holdfast.dev/gateway/internal/connectors"
)

// keptRequest is what is kept, sealed, of a write until it is settled: enough
// to send the same bytes again and to plan its check. Never the credential.
type keptRequest struct {
	Op     connectors.Op `json:"op"`
	Method string        `json:"method"`
	URL    string        `json:"url"`
	Header http.Header   `json:"header"`
	Body   []byte        `json:"body"`
}

// encode writes what json.Marshal would, in a small part of the time: every write is
// kept.
func (k *keptRequest) encode() ([]byte, error) {
	op := &k.Op
	size := 640 + len(k.URL) // and the rest, as a rule
	for _, b := range [][]byte{op.Params, op.Config, k.Body} {
		size += base64.StdEncoding.EncodedLen(len(b))
	}
	e := keeper(make([]byte, 0, size))
	e.text(`{"op":{"Action":`, op.Action)
	e.bytes(`,"Params":`, op.Params)
	e.bytes(`,"Config":`, op.Config)
	e.text(`,"BaseURL":`, op.BaseURL)
	e.text(`,"Marker":`, op.Marker)
	if op.Uncorrelated {
		e = append(e, `,"Uncorrelated":true`...)
	}
	e.text(`,"VendorKey":`, op.VendorKey)
	e = append(e, `,"Started":"`...)
	e, err := op.Started.AppendText(e)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	e.text(`"},"method":`, k.Method)
	e.text(`,"url":`, k.URL)
	e.header(`,"header":`, k.Header)
	e.bytes(`,"body":`, k.Body)
	return append(e, '}'), nil
}

// keeper appends values, each behind the text that leads to it.
type keeper []byte

func (e *keeper) text(lead, s string) {
	*e = append(*e, lead...)
	if plainInJSON(s) {
		*e = append(append(append(*e, '"'), s...), '"')
		return
	}
	encoded, _ := json.Marshal(s) // a string always encodes
	*e = append(*e, encoded...)
}

// some is text, but for an empty one.
func (e *keeper) some(lead, s string) {
	if s != "" {
		e.text(lead, s)
	}
}

// plainInJSON says that encoding/json writes a text as it is.
func plainInJSON(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case b < ' ', b >= utf8.RuneSelf, b == '"', b == '\\', b == '<', b == '>', b == '&':
			return false
		}
	}
	return true
}

func (e *keeper) bytes(lead string, b []byte) {
	*e = append(*e, lead...)
	if b == nil {
		*e = append(*e, "null"...)
		return
	}
	*e = append(base64.StdEncoding.AppendEncode(append(*e, '"'), b), '"')
}

func (e *keeper) header(lead string, h http.Header) {
	*e = append(*e, lead...)
	if h == nil {
		*e = append(*e, "null"...)
		return
	}
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	*e = append(*e, '{')
	for i, name := range names {
		if i > 0 {
			*e = append(*e, ',')
		}
		e.text("", name)
		e.list(":", h[name])
	}
	*e = append(*e, '}')
}

func (e *keeper) list(lead string, values []string) {
	*e = append(*e, lead...)
	if values == nil {
		*e = append(*e, "null"...)
		return
	}
	*e = append(*e, '[')
	for i, v := range values {
		if i > 0 {
			*e = append(*e, ',')
		}
		e.text("", v)
	}
	*e = append(*e, ']')
}
