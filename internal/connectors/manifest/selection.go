package manifest

import (
	"fmt"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// selection is a chain of member names and indexes from a variable.
type selection struct {
	root  string
	steps []step
}

type step struct {
	name     string
	index    int64
	isIndex  bool
	optional bool // .?name or [?index]: none if it is not there
}

// names is the path up to the first index.
func (s *selection) names() []string {
	var names []string
	for _, st := range s.steps {
		if st.isIndex {
			break
		}
		names = append(names, st.name)
	}
	return names
}

// pointer is the selection as a JSON Pointer into its root.
func (s *selection) pointer() string {
	var p string
	for _, st := range s.steps {
		if st.isIndex {
			p = child(p, fmt.Sprint(st.index))
			continue
		}
		p = child(p, st.name)
	}
	return p
}

// selectionOf returns x as a plain selection, or nil.
func selectionOf(x ast.Expr) *selection {
	switch x.Kind() {
	case ast.IdentKind:
		return &selection{root: x.AsIdent()}
	case ast.SelectKind:
		sel := x.AsSelect()
		if sel.IsTestOnly() {
			return nil
		}
		return selectionOf(sel.Operand()).then(step{name: sel.FieldName()})
	case ast.CallKind:
		return indexOf(x.AsCall())
	default:
		return nil
	}
}

func indexOf(call ast.CallExpr) *selection {
	optional := false
	switch call.FunctionName() {
	case operators.Index:
	case operators.OptIndex, operators.OptSelect:
		optional = true
	default:
		return nil
	}
	args := call.Args()
	if len(args) != 2 || args[1].Kind() != ast.LiteralKind {
		return nil
	}
	switch key := args[1].AsLiteral().(type) {
	case types.String:
		return selectionOf(args[0]).then(step{name: string(key), optional: optional})
	case types.Int:
		return selectionOf(args[0]).then(step{index: int64(key), isIndex: true, optional: optional})
	default:
		return nil
	}
}

func (s *selection) then(st step) *selection {
	if s == nil {
		return nil
	}
	s.steps = append(s.steps, st)
	return s
}

// walkable says whether walk can follow the selection: into JSON, or to what a
// request is told of its write.
func (s *selection) walkable() bool {
	switch s.root {
	case varParams, varConfig, varBody:
		return true
	case varMarker, varMark, varKey, varUnix, varRFC3339:
		return len(s.steps) == 0
	default:
		return false
	}
}

// walk follows a plain selection with the meaning CEL gives it, but ends at the
// raw token.
func (s *selection) walk(vars *scope) (raw []byte, ok bool, err error) {
	v := vars.variable(s.root)
	if v == nil || types.IsError(v) {
		return nil, false, errExpression
	}
	if len(s.steps) == 0 {
		raw, err = appendJSON(nil, v)
		return raw, err == nil, err
	}
	viral := false // once optional, a missing step gives none, not an error
	for i, st := range s.steps {
		viral = viral || st.optional
		var found bool
		raw, v, found, err = st.from(v, i == len(s.steps)-1)
		switch {
		case err != nil:
			return nil, false, err
		case !found && viral:
			return nil, false, nil
		case !found:
			return nil, false, errNoMember
		}
	}
	return raw, true, nil
}

// from takes one step. The last gives the raw token only: a number that cannot
// be computed with can still be copied.
func (st step) from(v ref.Val, last bool) (raw []byte, next ref.Val, found bool, err error) {
	switch c := v.(type) {
	case *object:
		if st.isIndex {
			return nil, nil, false, errExpression
		}
		raw, found = c.find(st.name)
	case *array:
		if !st.isIndex {
			return nil, nil, false, errExpression
		}
		raw, found = c.at(st.index)
	default:
		return nil, nil, false, errExpression
	}
	if found && !last {
		next = newValue(raw)
	}
	return raw, next, found, nil
}
