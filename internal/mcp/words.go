package mcp

import (
	"encoding/json"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// words are what an agent reads first, and whether the call failed.
type words struct {
	first string
	bad   bool
	code  int // of JSON-RPC, as the field uses it; 0: none
}

// Codes that agents' frameworks know for a call that runs already and for a key
// that stands for another call.
const (
	codeConflict   = -32043
	codeInProgress = -32044
)

// Where a result carries one of them, and the id of the request as logs and audit
// have it.
const (
	metaCode      = "dev.holdfast/jsonrpc-code"
	metaRequestID = "dev.holdfast/request-id"
)

const unknownWords = "UNKNOWN: may have been done; do not send again; check "

// nothingDone says which are the codes of a `do` after which this call is known to have done
// nothing; every other one leaves a doubt.
func nothingDone(code string) bool {
	switch code {
	case "invalid_json", "invalid_request", "invalid_body", "invalid_key",
		"unknown_connection", "unknown_action", "not_found", "connection_paused", "tenant_suspended",
		"unauthenticated", "forbidden", "method_not_allowed", "too_large", "unsupported_media_type",
		"rate_limited", "store_unavailable", "draining":
		return true
	}
	return false
}

// wordsOfDo reads the answer to a `do`. What it does not know is unknown: it must
// never be taken for a write that was not done.
func wordsOfDo(a answer) words {
	if a.ok() {
		return wordsOfSuccess(a)
	}
	code, detail := text(a.body, "code"), text(a.body, "detail")
	switch code {
	case "vendor_refused":
		return words{first: "NOT DONE: the vendor refused it. " + detail, bad: true}
	case "vendor_rate_limited", "vendor_unavailable", "not_sent":
		return words{first: "NOT DONE: " + detail + wait(a), bad: true}
	case "key_reused":
		return words{first: "NOT DONE: " + detail, bad: true, code: codeConflict}
	case "in_flight":
		return words{first: "IN FLIGHT: this very write is running and was not sent a second time; repeat the same call to get its answer." + wait(a), bad: true, code: codeInProgress}
	case "twin_unsettled":
		return words{first: "UNKNOWN: an identical write under another key may have been done; do not send again; check " + text(a.body, "action_id") + ". " + detail, bad: true, code: codeConflict}
	case "answer_not_saved":
		return words{first: "ANSWERED, NOT SAVED YET: do not send again; get_action " + text(a.body, "action_id") + " has the answer later. " + detail, bad: true}
	case "outcome_unknown":
		return words{first: unknownWords + checkOf(a) + ". " + detail, bad: true}
	}
	if nothingDone(code) {
		// An earlier call may have done it, so it is said of this one only.
		return words{first: "NOT DONE by this call: " + detail + wait(a), bad: true}
	}
	return words{first: unknownWords + "by repeating this call unchanged, or ask an operator. " + detail, bad: true}
}

func wordsOfSuccess(a answer) words {
	switch {
	case string(member(a.body, "dry_run")) == "true":
		return words{first: "DRY RUN, nothing was sent: would " + text(a.body, "would") + "."}
	case text(a.body, "state") != "succeeded":
		return words{first: unknownWords + text(a.body, "id") + ".", bad: true}
	case string(member(a.body, "replayed")) == "true":
		return words{first: "ALREADY DONE at " + text(a.body, "settled_at") + " (not sent again). " + text(a.body, "notice")}
	default:
		return words{first: "DONE at " + text(a.body, "settled_at") + "."}
	}
}

// checkOf names how to find out about a held write.
func checkOf(a answer) string {
	id := text(a.body, "action_id")
	if how := text(member(a.body, "check"), "detail"); how != "" {
		return id + " (check_action): " + strings.TrimSuffix(how, ".")
	}
	return id + " (check_action)"
}

func wait(a answer) string {
	after := a.header.Get("Retry-After")
	if after == "" {
		return ""
	}
	return " Wait " + after + " s, then repeat the same call."
}

func wordsOfLook(a answer) words {
	if a.ok() {
		return words{first: "OK."}
	}
	return words{first: "FAILED: " + text(a.body, "detail") + wait(a), bad: true}
}

// wordsOfAction reads an action that was looked at.
func wordsOfAction(a answer) words {
	if !a.ok() {
		return wordsOfLook(a)
	}
	return words{first: standing(a.body)}
}

// standing says how an action stands.
func standing(action []byte) string {
	id := text(action, "id")
	switch text(action, "state") {
	case "succeeded":
		return "DONE at " + text(action, "settled_at") + "."
	case "refused":
		return "NOT DONE: the vendor refused it."
	case "not_done":
		return "NOT DONE: nothing happened at the vendor; it may be sent again."
	case "in_flight":
		return "IN FLIGHT: it is running; look again later."
	case "held":
		return unknownWords + checkOf(answer{body: append([]byte(`{"action_id":"`+id+`",`), action[1:]...)}) + "."
	default:
		return unknownWords + "at the vendor: nobody found out in time."
	}
}

// wordsOfCheck reads what a check came to.
func wordsOfCheck(a answer) words {
	if !a.ok() {
		return wordsOfLook(a)
	}
	detail := text(a.body, "detail")
	switch text(a.body, "verdict") {
	case "succeeded":
		return words{first: "DONE: the check found that the write was done. " + detail}
	case "not_performed":
		return words{first: "NOT DONE: the check found that the write was not done. " + detail}
	default:
		return words{first: "UNKNOWN: the check found nothing out; do not send again. " + detail}
	}
}

// result is an answer of the API as the result of a tool. The text has the
// answer's own bytes; the structured content is the same JSON.
func result(t tool, a answer) *sdk.CallToolResult {
	if !json.Valid(a.body) || len(a.body) == 0 || a.body[0] != '{' {
		return unanswered(t) // not a gateway's answer, or a proxy's in front of it
	}
	w := t.word(a)
	r := &sdk.CallToolResult{
		Content:           []sdk.Content{&sdk.TextContent{Text: w.first}, &sdk.TextContent{Text: string(a.body)}},
		StructuredContent: json.RawMessage(a.body), IsError: w.bad,
	}
	r.Meta = sdk.Meta{}
	if id := a.header.Get("Request-Id"); id != "" {
		r.Meta[metaRequestID] = id
	}
	if w.code != 0 {
		r.Meta[metaCode] = w.code
	}
	return r
}

// unanswered is the result where no whole answer of the gateway came.
func unanswered(t tool) *sdk.CallToolResult {
	first := "FAILED: the gateway gave no answer; call the tool again."
	if !t.reads {
		first = unknownWords + "by repeating this call unchanged: the gateway gave no answer, and it never sends the same write twice."
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: first}}, IsError: true}
}
