package mcp

import (
	"encoding/json"
	"errors"
	"net/http"

	"holdfast.dev/gateway/internal/strictjson"
)

// readParams reads the arguments of a tool that looks, as strictly as the API
// reads a body. The answer is a refusal in the API's form.
func readParams(raw json.RawMessage, w want) (params, *answer) {
	var p params
	if err := strictjson.Unmarshal(raw, &p); err != nil {
		pointer, reason := "", err.Error()
		var wrong strictjson.Errors
		var unsound *strictjson.Error
		if errors.As(err, &wrong) && len(wrong) > 0 {
			unsound = wrong[0]
		} else {
			_ = errors.As(err, &unsound)
		}
		if unsound != nil {
			pointer, reason = unsound.Pointer, unsound.Reason
		}
		bad := problem(pointer, reason)
		return params{}, &bad
	}
	list, err := strictjson.Members(raw)
	has := false
	for _, m := range list {
		if !w.takes(m.Name) {
			bad := problem("/"+m.Name, "this tool has no such argument")
			return params{}, &bad
		}
		has = has || m.Name == w.must && string(m.Value) != `""`
	}
	if err != nil || w.must != "" && !has {
		bad := problem("/"+w.must, "this argument is missing")
		return params{}, &bad
	}
	return p, nil
}

// problem is an answer that the API did not have to be asked for.
func problem(pointer, reason string) answer {
	body, _ := json.Marshal(struct { //nolint:errchkjson // strings always encode
		Type   string              `json:"type"`
		Title  string              `json:"title"`
		Status int                 `json:"status"`
		Code   string              `json:"code"`
		Detail string              `json:"detail"`
		Next   string              `json:"next"`
		Errors []map[string]string `json:"errors"`
	}{
		Type: "/problems/invalid_request", Title: "Invalid request", Status: http.StatusBadRequest, Code: "invalid_request",
		Detail: "The arguments do not have the form this tool takes, so nothing was done. Correct what errors names and call it again.",
		Next:   "fix_request", Errors: []map[string]string{{"pointer": pointer, "detail": reason}},
	})
	return answer{status: http.StatusBadRequest, body: body}
}

// member returns the raw value of a member of an object, nil if it has none.
func member(raw []byte, name string) []byte {
	list, err := strictjson.Members(raw)
	if err != nil {
		return nil
	}
	for _, m := range list {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// text returns a member that is a string, "" if it is none.
func text(raw []byte, name string) string {
	var s string
	if json.Unmarshal(member(raw, name), &s) != nil {
		return ""
	}
	return s
}
