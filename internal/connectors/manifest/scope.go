package manifest

import (
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"holdfast.dev/gateway/internal/connectors"
)

// scope has the variables of one evaluation: those of a write and, where there is
// one, of its answer. What is dear to make is made when it is first asked for: most
// rules look at the status alone. A scope belongs to one call.
type scope struct {
	op             connectors.Op
	params, config ref.Val  // objects, whose members are read when they are looked at
	answer         *reading // nil: there is none yet
	headers, body  ref.Val
}

var _ cel.Activation = (*scope)(nil)

// with adds the variables of an answer.
func (s *scope) with(ans *reading) *scope {
	s.answer = ans
	return s
}

// ResolveName implements cel.Activation.
func (s *scope) ResolveName(name string) (any, bool) {
	v := s.variable(name)
	return v, v != nil
}

// Parent implements cel.Activation.
func (s *scope) Parent() cel.Activation { return nil }

// variable returns nil for one that there is not.
func (s *scope) variable(name string) ref.Val {
	switch name {
	case varParams:
		return s.params
	case varConfig:
		return s.config
	case varMarker:
		return types.String(s.op.Marker)
	case varMark:
		return types.Bool(!s.op.Uncorrelated)
	case varKey:
		return types.String(s.op.VendorKey)
	case varUnix:
		return types.Int(s.op.Started.Unix())
	case varRFC3339:
		return types.String(s.op.Started.UTC().Format(time.RFC3339))
	}
	if s.answer == nil {
		return nil
	}
	switch name {
	case varStatus:
		return types.Int(s.answer.Status)
	case varHeaders:
		return once(&s.headers, func() ref.Val {
			return types.DefaultTypeAdapter.NativeToValue(headerMap(s.answer.Header))
		})
	case varBody:
		return once(&s.body, s.answer.value)
	}
	return nil
}

func once(kept *ref.Val, read func() ref.Val) ref.Val {
	if *kept == nil {
		*kept = read()
	}
	return *kept
}

// objectValue returns nil for what is no sound JSON object.
func objectValue(raw []byte) ref.Val {
	if soundJSON(raw) {
		if v, ok := newValue(raw).(*object); ok {
			return v
		}
	}
	return nil
}
