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

// checkEnvelope refuses a message that two readers could take for two: the SDK
// keeps the last of several members, another keeps the first. What the arguments
// hold is checked by the API, more strictly. What is no object is left to the
// SDK, which knows what to answer.
func checkEnvelope(raw []byte) error {
	if batch, err := strictjson.Elements(raw); err == nil { // up to version 2025-03-26
		for _, message := range batch {
			if len(message) > 0 && message[0] == '{' {
				if err := checkEnvelope(message); err != nil {
					return err
				}
			}
		}
		return nil
	}
	message, err := strictjson.Members(raw)
	if err != nil {
		return nil //nolint:nilerr // the SDK refuses it in the protocol's own words
	}
	if !once(message, "jsonrpc", "id", "method", "params") {
		return errTwice
	}
	for _, m := range message {
		if m.Name != "params" {
			continue
		}
		params, err := strictjson.Members(m.Value)
		if err == nil && !once(params, "name", "arguments", "_meta") {
			return errTwice
		}
	}
	return nil
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

func refuseMessage(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(message))
}
