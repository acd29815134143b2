package api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/trail"
)

// problemOf turns whatever a handler returned into what is answered. What it
// does not know is internal.
func problemOf(err error) *problem {
	var (
		p       *problem
		action  *actions.Error
		routing *echo.HTTPError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &action) && known(action.Code):
		return ofAction(action)
	case errors.As(err, &routing):
		return refuse(codeOfStatus(routing.Code), "").because(routing.Internal)
	}
	if p := ofInput(err); p != nil {
		return p
	}
	for _, row := range sentinels() {
		if errors.Is(err, row.err) {
			return refuse(row.code, row.detail, row.fields...).because(err)
		}
	}
	return refuse(actions.Internal, "").because(err)
}

func ofAction(e *actions.Error) *problem {
	p := &problem{
		code: e.Code, detail: sentence(e.Detail), next: e.Next, retryAfter: e.RetryAfter,
		record: e.Record, replayed: e.Replayed, check: e.Check, unsaved: e.Unsaved, cause: e.Cause,
	}
	for _, f := range e.Fields {
		p.fields = append(p.fields, field{pointer: f.Pointer, detail: f.Reason})
	}
	return p
}

// sentence gives words that were written as an error's the look of the others:
// a capital in front and a full stop behind.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	if first := s[0]; 'a' <= first && first <= 'z' {
		s = string(first-'a'+'A') + s[1:]
	}
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}

// codeOfStatus reads what echo itself refuses.
func codeOfStatus(status int) actions.Code {
	switch status {
	case http.StatusNotFound:
		return actions.NotFound
	case http.StatusMethodNotAllowed:
		return methodNotAllowed
	case http.StatusRequestEntityTooLarge:
		return tooLarge
	case http.StatusUnsupportedMediaType:
		return unsupportedMediaType
	case http.StatusBadRequest:
		return actions.InvalidRequest
	default:
		return actions.Internal
	}
}

// sentinel is what an error of a neighbour becomes.
type sentinel struct {
	err    error
	code   actions.Code
	detail string
	fields []field
}

// sentinels are tried in order, so what is worse comes first.
func sentinels() []sentinel {
	const unsure = "The gateway's store did not answer, so it is not known whether a change was made; nothing was sent to a vendor. Wait as long as Retry-After says, then look, and repeat the request if it is still needed."
	return []sentinel{
		{err: ledger.ErrCorrupt, code: actions.AnswerUnreadable, detail: "What is stored about this cannot be read. Nothing was changed; ask an operator."},
		{err: dedupe.ErrUnreadable, code: actions.AnswerUnreadable, detail: "What is stored about this cannot be read. Nothing was changed; ask an operator."},
		{err: ledger.ErrUnavailable, code: actions.StoreUnavailable, detail: unsure},
		{err: ledger.ErrNotReady, code: actions.StoreUnavailable, detail: unsure},
		{err: tenants.ErrUnauthenticated, code: unauthenticated},
		{err: audit.ErrClosed, code: unauthenticated}, // the key's tenant was deleted meanwhile
		{err: tenants.ErrNotFound, code: actions.NotFound},
		{err: tenants.ErrExists, code: alreadyExists, detail: "There is a tenant of that id, so nothing was changed. Choose another id, or PATCH the one there is."},
		{err: tenants.ErrUnsettled, code: unsettledWrites},
		{err: tenants.ErrCursor, code: actions.InvalidRequest, fields: badCursor()},
		{err: connections.ErrNotFound, code: actions.NotFound, detail: "There is no connection of that name. GET /v1/connections lists those there are."},
		{err: connections.ErrFixed, code: connectionFixed},
		{err: connections.ErrUnsettled, code: unsettledWrites},
		{err: connections.ErrCursor, code: actions.InvalidRequest, fields: badCursor()},
		{err: connectors.ErrUnknownConnector, code: actions.NotFound, detail: "No such connector version is registered. GET /v1/connectors lists those that are loaded."},
		{err: connectors.ErrTaken, code: alreadyExists, detail: "This version stands for other bytes already, and a version never changes; nothing was changed. Raise the version in the manifest and in the path."},
		{err: connectors.ErrInUse, code: connectorInUse},
		{err: trail.ErrCursor, code: actions.InvalidRequest, fields: badCursor()},
	}
}

func badCursor() []field {
	return []field{{parameter: "cursor", detail: "this is no cursor of this list with these filters"}}
}

// ofInput reads what tenants and connections say is wrong with what they were
// given; nil if err is nothing of that. Their texts never repeat a value.
func ofInput(err error) *problem {
	var (
		invalid *tenants.InvalidError
		spec    *connections.SpecError
	)
	var manifest *connectors.ManifestError
	switch {
	case errors.As(err, &manifest):
		return ofManifest(manifest).because(err)
	case errors.As(err, &invalid):
		p := refuse(actions.InvalidRequest, "").because(err)
		for _, at := range invalid.Problems {
			p.fields = append(p.fields, field{pointer: at.Pointer, detail: at.Reason})
		}
		return p
	case errors.As(err, &spec) && spec.Pointer == "":
		return refuse(actions.InvalidRequest, "The name of the connection is not acceptable, so nothing was changed: "+spec.Reason+".").because(err)
	case errors.As(err, &spec):
		return refuse(actions.InvalidRequest, "", field{pointer: spec.Pointer, detail: spec.Reason}).because(err)
	default:
		return nil
	}
}

// ofManifest lists what is wrong with a manifest, with lines: its text does not
// come out of a program, so a pointer alone would not be found in it.
func ofManifest(bad *connectors.ManifestError) *problem {
	p := refuse(actions.InvalidRequest, "The manifest is not acceptable, so nothing was changed. errors says what is wrong, and in which line.")
	for _, at := range bad.Problems {
		detail := at.Reason
		if at.Line > 0 {
			detail = fmt.Sprintf("line %d: %s", at.Line, detail)
		}
		p.fields = append(p.fields, field{pointer: at.Pointer, detail: detail})
	}
	return p
}
