package manifest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"cel.dev/cel-go/cel"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/strictjson"
)

// The members that make a mapping an expression.
const (
	dollar    = "$"
	dollarOpt = "$opt"
)

// tree is a compiled value tree. Exactly one of its forms is set.
type tree struct {
	literal  []byte // a JSON token
	expr     *expr
	optional bool // of expr: left out when it gives none
	members  []member
	items    []*tree
	isObject bool
}

type member struct {
	name  string
	value *tree
}

// planter compiles value trees of one place in a manifest.
type planter struct {
	*problems
	env *cel.Env
	// form refuses what a form or a query cannot express.
	form bool
	// check looks at each expression of the tree.
	check func(pointer string, e *expr)
}

// tree compiles n. Problems are noted, and then the tree is of no use.
func (p planter) tree(n *yaml.Node, pointer string) *tree {
	switch n.Kind {
	case yaml.MappingNode:
		return p.mapping(n, pointer)
	case yaml.SequenceNode:
		t := &tree{items: []*tree{}}
		for i, item := range n.Content {
			t.items = append(t.items, p.tree(item, child(pointer, strconv.Itoa(i))))
		}
		if p.form && len(t.items) == 0 {
			p.add(pointer, "a form cannot hold an empty list")
		}
		return t
	default:
		token, _ := scalarToken(n)
		if p.form && string(token) == "null" {
			p.add(pointer, "a form cannot hold null")
		}
		return &tree{literal: token}
	}
}

func (p planter) mapping(n *yaml.Node, pointer string) *tree {
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if name != dollar && name != dollarOpt {
			continue
		}
		if len(n.Content) != 2 {
			p.add(pointer, "an expression stands alone: nothing may stand beside %s", name)
			return &tree{literal: []byte("null")}
		}
		return p.expression(n.Content[1], pointer, name == dollarOpt)
	}
	t := &tree{isObject: true}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		t.members = append(t.members, member{name: name, value: p.tree(n.Content[i+1], child(pointer, name))})
	}
	if p.form && len(t.members) == 0 {
		p.add(pointer, "a form cannot hold an empty object")
	}
	return t
}

// maxExpression bounds an expression's text; the schema does it elsewhere.
const maxExpression = 2000

func (p planter) expression(n *yaml.Node, pointer string, optional bool) *tree {
	null := &tree{literal: []byte("null")}
	name, kind := dollar, wantPlain
	if optional {
		name, kind = dollarOpt, wantOptional
	}
	at := child(pointer, name)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || n.Value == "" || len(n.Value) > maxExpression {
		p.add(at, "an expression is a string of 1 to %d characters", maxExpression)
		return null
	}
	e, err := compileExpr(p.env, n.Value, kind)
	if err != nil {
		p.add(at, "%v", err)
		return null
	}
	if p.check != nil {
		p.check(at, e)
	}
	return &tree{expr: e, optional: optional}
}

// each visits every expression of the tree.
func (t *tree) each(visit func(*expr)) {
	if t == nil {
		return
	}
	if t.expr != nil {
		visit(t.expr)
	}
	for _, m := range t.members {
		m.value.each(visit)
	}
	for _, item := range t.items {
		item.each(visit)
	}
}

// reads says whether an expression of the tree reads a variable.
func (t *tree) reads(name string) bool {
	found := false
	t.each(func(e *expr) { found = found || e.reads[name] })
	return found
}

// renderer turns trees into JSON.
type renderer struct {
	ctx  context.Context
	vars *scope
	// form refuses values that a form or query cannot express.
	form bool
	// lenient gives an empty value for an expression that cannot be evaluated:
	// a result is best effort and never changes an outcome.
	lenient bool
}

// render appends the tree as JSON. ok is false if the tree is left out.
func (r renderer) render(dst []byte, t *tree) (_ []byte, ok bool, err error) {
	switch {
	case t.expr != nil:
		return r.expression(dst, t)
	case t.isObject:
		return r.object(dst, t)
	case t.items != nil:
		return r.list(dst, t)
	default:
		return append(dst, t.literal...), true, nil
	}
}

func (r renderer) object(dst []byte, t *tree) (_ []byte, ok bool, err error) {
	dst = append(dst, '{')
	first := true
	for _, m := range t.members {
		mark := len(dst)
		if !first {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(dst, m.name), ':')
		if dst, ok, err = r.render(dst, m.value); err != nil {
			return nil, false, err
		}
		if !ok {
			dst = dst[:mark]
			continue
		}
		first = false
	}
	return append(dst, '}'), true, nil
}

func (r renderer) list(dst []byte, t *tree) (_ []byte, ok bool, err error) {
	dst = append(dst, '[')
	first := true
	for _, item := range t.items {
		mark := len(dst)
		if !first {
			dst = append(dst, ',')
		}
		if dst, ok, err = r.render(dst, item); err != nil {
			return nil, false, err
		}
		if !ok {
			dst = dst[:mark]
			continue
		}
		first = false
	}
	return append(dst, ']'), true, nil
}

func (r renderer) expression(dst []byte, t *tree) (_ []byte, ok bool, err error) {
	raw, ok, err := t.expr.token(r.ctx, r.vars)
	if err == nil && ok && r.form {
		err = formable(raw)
	}
	switch {
	case r.ctx.Err() != nil:
		return nil, false, fmt.Errorf("evaluate expression: %w", r.ctx.Err())
	case err != nil && r.lenient:
		return append(dst, "null"...), !t.optional, nil
	case err != nil:
		return nil, false, t.expr.blame(err)
	case !ok && !t.optional:
		return nil, false, t.expr.blame(errNoMember)
	case !ok:
		return dst, false, nil
	}
	return append(dst, raw...), true, nil
}

// blame makes the error of an expression that could not be evaluated the
// agent's, where the agent's body is what it reads.
func (e *expr) blame(cause error) error {
	if len(e.params) == 0 && !e.reads[varParams] {
		return fmt.Errorf("%w: %w", connectors.ErrPlan, cause)
	}
	return connectors.Invalid(e.place(), "the request cannot be built from this: "+cause.Error())
}

// place points at the one member of params an expression reads, or at the
// whole body.
func (e *expr) place() string {
	if e.plain != nil {
		return e.plain.pointer()
	}
	longest := ""
	for _, names := range e.params {
		p := ""
		for _, name := range names {
			p = child(p, name)
		}
		switch {
		case len(p) >= len(longest) && p[:len(longest)] == longest:
			longest = p
		case p != longest[:min(len(p), len(longest))]:
			return ""
		}
	}
	return longest
}

var (
	errFormNull  = errors.New("this action sends a form, and a form cannot hold null; leave the member out")
	errFormEmpty = errors.New("this action sends a form, and a form cannot hold an empty list or object; leave the member out")
	errFormName  = errors.New("this action sends a form, and a member name in a form cannot hold [ or ]")
)

// formable says whether a form can express a value without changing it.
func formable(raw []byte) error {
	switch raw[0] {
	case 'n':
		return errFormNull
	case '{':
		members, err := strictjson.Members(raw)
		if err != nil || len(members) == 0 {
			return errFormEmpty
		}
		for _, m := range members {
			if !formName(m.Name) {
				return errFormName
			}
			if err := formable(m.Value); err != nil {
				return err
			}
		}
	case '[':
		elements, err := strictjson.Elements(raw)
		if err != nil || len(elements) == 0 {
			return errFormEmpty
		}
		for _, e := range elements {
			if err := formable(e); err != nil {
				return err
			}
		}
	}
	return nil
}
