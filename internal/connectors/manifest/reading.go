package manifest

import (
	"bytes"
	"net/http"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/strictjson"
)

// bodyState says what an answer's body can be used for.
type bodyState int

const (
	notKept bodyState = iota // larger than the gateway keeps
	isEmpty
	isJSON
	isDeepJSON // JSON, nested deeper than an expression may look
	isOther
)

// reading is an answer whose body has been looked at once.
type reading struct {
	connectors.Answer
	state bodyState
}

func read(ans connectors.Answer) reading {
	body := bytes.TrimSpace(ans.Body)
	depth, sound := strictjson.Sound(body)
	switch {
	case !ans.Whole:
		return reading{ans, notKept}
	case len(body) == 0:
		return reading{ans, isEmpty}
	case !sound:
		return reading{ans, isOther}
	case depth > maxJSONDepth:
		return reading{ans, isDeepJSON}
	default:
		return reading{ans, isJSON}
	}
}

// value is the variable body: the parsed JSON, null where there is none, and an
// error where it cannot be known, so that a rule that looks at it fails.
func (r reading) value() ref.Val {
	switch r.state {
	case notKept, isDeepJSON:
		return types.NewErr("the body cannot be looked into")
	case isJSON:
		return newValue(r.Body)
	default:
		return types.NullValue
	}
}

// garbled says whether an answer contradicts itself: it calls its body JSON, or
// begins like JSON without saying what it is, and the body is not. A body that
// was cut where no length was announced looks like this (RFC 9112 section 6.3
// lets it end with the connection), so the status is not believed either.
func (r reading) garbled() bool {
	kind := r.Header.Get("Content-Type")
	switch r.state {
	case isEmpty:
		return jsonType(kind) && !r.bodyless()
	case isOther:
		if kind == "" {
			first := bytes.TrimSpace(r.Body)[0]
			return first == '{' || first == '['
		}
		return jsonType(kind)
	default:
		return false
	}
}

// bodyless says whether an answer announced that it has no body.
func (r reading) bodyless() bool {
	switch r.Status {
	case http.StatusNoContent, http.StatusResetContent, http.StatusNotModified:
		return true
	}
	return r.Header.Get("Content-Length") == "0"
}
