package mcp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"holdfast.dev/gateway/internal/strictjson"
)

var errTwice = errors.New("a member of the message stands twice, or in another case, so it is not clear what is asked for; nothing was done")

var errNoMessage = errors.New("this is not one JSON-RPC message; nothing was done")

var errBadID = errors.New("an id must be a string or a whole number that every reader reads alike (RFC 7493 section 2.2), and no two messages of a batch may share one; nothing was done")

// checkEnvelope refuses a message that two readers could take for two: the SDK
// keeps the last of several members, another keeps the first; it reads no further
// than the first value, and rounds an id to another message's. What the arguments
// hold is checked by the API, more strictly.
func checkEnvelope(raw []byte) error {
	if !json.Valid(raw) {
		return errNoMessage
	}
	if batch, err := strictjson.Elements(raw); err == nil { // up to version 2025-03-26
		return checkBatch(batch)
	}
	message, err := strictjson.Members(raw)
	if err != nil {
		return errNoMessage
	}
	if !once(message, "jsonrpc", "id", "method", "params") {
		return errTwice
	}
	for _, m := range message {
		switch m.Name {
		case "id":
			if !plainID(m.Value) {
				return errBadID
			}
		case "params":
			params, err := strictjson.Members(m.Value)
			if err == nil && !once(params, "name", "arguments", "_meta") {
				return errTwice
			}
		}
	}
	return nil
}

// checkBatch refuses a batch with two messages of one id: the SDK runs the first
// of them and never answers the other. Messages that are none are the SDK's to
// refuse.
func checkBatch(batch [][]byte) error {
	seen := make(map[string]bool, len(batch))
	for _, message := range batch {
		if len(message) == 0 || message[0] != '{' {
			continue
		}
		if err := checkEnvelope(message); err != nil {
			return err
		}
		id := idOf(message)
		if id != "" && seen[id] {
			return errBadID
		}
		seen[id] = true
	}
	return nil
}

// idOf is the id of a message with plain ids, in one spelling; "" if it has none.
func idOf(message []byte) string {
	raw := member(message, "id")
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return strconv.Quote(s)
}

// maxExact is the largest whole number that a reader with doubles knows from its
// neighbours.
const maxExact = 1<<53 - 1

// plainID says whether an id is read alike by all. What is neither a string nor a
// number is the SDK's to refuse.
func plainID(raw []byte) bool {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil && -maxExact <= n && n <= maxExact && string(raw) != "-0"
}

// once says whether each name stands at most once and in no other case.
func once(members []strictjson.Member, names ...string) bool {
	seen := make(map[string]bool, len(names))
	for _, m := range members {
		for _, name := range names {
			if !strings.EqualFold(m.Name, name) {
				continue
			}
			if m.Name != name || seen[name] {
				return false
			}
			seen[name] = true
		}
	}
	return true
}

// Codes of JSON-RPC 2.0 section 5.1.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
)

var errNoNews = errors.New("nothing is told of by itself, so there is nothing to listen for; list the tools again")

// refusal is the answer to a message that is not handed on. It has the message's
// id where there is one id.
func refusal(message []byte, code int, err error) string {
	id := "null"
	if list, bad := strictjson.Members(message); bad == nil && once(list, "id") {
		if own := member(message, "id"); json.Valid(own) {
			id = string(own)
		}
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":` + strconv.Itoa(code) + `,"message":"` + err.Error() + `"}}`
}

// envelopeCode is the code of what is wrong with a message.
func envelopeCode(raw []byte) int {
	if !json.Valid(raw) {
		return codeParse
	}
	return codeInvalidRequest
}

func refuseMessage(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(message))
}
