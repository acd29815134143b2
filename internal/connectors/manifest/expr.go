package manifest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// costLimit stops an expression whose work grows out of hand, such as nested
// loops over a long list. One megabyte searched for a marker costs about half
// of it.
const costLimit = 1_000_000

// interruptEvery is how many rounds of a loop pass between looks at the context.
const interruptEvery = 100

// The variables of an expression. What op has is declared name by name, so that
// a misspelt one is refused at load.
const (
	varParams  = "params"
	varConfig  = "config"
	varMarker  = "op.marker"
	varMark    = "op.correlate"
	varKey     = "op.vendor_key"
	varUnix    = "op.started_unix"
	varRFC3339 = "op.started_rfc3339"
	varStatus  = "status"
	varHeaders = "headers"
	varBody    = "body"
)

// environments are what expressions are compiled in: requests know no answer.
type environments struct {
	request, answer *cel.Env
}

func newEnvironments() (environments, error) {
	object := cel.MapType(cel.StringType, cel.DynType)
	request, err := cel.NewEnv(
		cel.OptionalTypes(),
		cel.CrossTypeNumericComparisons(true),
		// has() on what is no object is an error, not false: a page of HTML
		// (body is null) must not pass for "has no errors".
		cel.EnableErrorOnBadPresenceTest(true),
		cel.ASTValidators(cel.ValidateRegexLiterals()),
		cel.Variable(varParams, object),
		cel.Variable(varConfig, object),
		cel.Variable(varMarker, cel.StringType),
		cel.Variable(varMark, cel.BoolType),
		cel.Variable(varKey, cel.StringType),
		cel.Variable(varUnix, cel.IntType),
		cel.Variable(varRFC3339, cel.StringType),
	)
	if err != nil {
		return environments{}, fmt.Errorf("make request environment: %w", err)
	}
	answer, err := request.Extend(
		cel.Variable(varStatus, cel.IntType),
		cel.Variable(varHeaders, cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable(varBody, cel.DynType),
	)
	if err != nil {
		return environments{}, fmt.Errorf("make answer environment: %w", err)
	}
	return environments{request: request, answer: answer}, nil
}

// expr is a compiled expression.
type expr struct {
	source  string
	program cel.Program
	checked *cel.Ast
	plain   *selection      // not nil for a plain selection
	loops   bool            // it has a loop, which the context can end
	reads   map[string]bool // variables it reads
	params  [][]string      // members of params it selects, as paths
	config  [][]string
}

// want is the type an expression must have. A dynamic one is accepted for each
// and decided when it runs.
type want int

const (
	wantAny      want = iota // optional or not
	wantPlain                // anything that is not optional
	wantOptional             // an optional value
	wantBool
	wantList
)

// compileExpr compiles source. The error is one sentence for the author.
func compileExpr(env *cel.Env, source string, w want) (*expr, error) {
	checked, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, errors.New(firstIssue(issues))
	}
	if err := w.check(checked.OutputType()); err != nil {
		return nil, err
	}
	program, err := env.Program(checked,
		cel.EvalOptions(cel.OptOptimize),
		cel.CostLimit(costLimit),
		cel.InterruptCheckFrequency(interruptEvery),
	)
	if err != nil {
		return nil, fmt.Errorf("the expression cannot be run: %w", err)
	}
	e := &expr{source: source, program: program, checked: checked, reads: make(map[string]bool)}
	root := checked.NativeRep().Expr()
	if s := selectionOf(root); s != nil && s.walkable() {
		e.plain = s
	}
	e.survey(root)
	return e, nil
}

func firstIssue(issues *cel.Issues) string {
	for _, issue := range issues.Errors() {
		return "CEL: " + strings.Join(strings.Fields(issue.Message), " ")
	}
	return "CEL: the expression cannot be compiled"
}

func (w want) check(got *cel.Type) error {
	dynamic := got.Kind() == types.DynKind
	switch {
	case w == wantPlain && isOptional(got):
		return errors.New("the expression gives an optional value; use $opt, or end it with .orValue(…)")
	case w == wantOptional && !isOptional(got) && !dynamic:
		return errors.New("the expression always gives a value; use $, or select with .?name")
	case w == wantBool && got.Kind() != types.BoolKind && !dynamic:
		return fmt.Errorf("the expression must be true or false, it is of type %s", got)
	case w == wantList && got.Kind() != types.ListKind && !dynamic:
		return fmt.Errorf("the expression must be a list, it is of type %s", got)
	}
	return nil
}

func isOptional(t *cel.Type) bool {
	return t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName()
}

// survey notes which variables and which members of params and config an
// expression reads.
func (e *expr) survey(root ast.Expr) {
	ast.PreOrderVisit(root, ast.NewExprVisitor(func(x ast.Expr) {
		switch x.Kind() {
		case ast.IdentKind:
			e.reads[x.AsIdent()] = true
		case ast.ComprehensionKind:
			e.loops = true
		default:
		}
		s := selectionOf(x)
		if s == nil || len(s.steps) == 0 {
			return
		}
		switch s.root {
		case varParams:
			e.params = append(e.params, s.names())
		case varConfig:
			e.config = append(e.config, s.names())
		}
	}))
}

// Errors of an evaluation. They say nothing of values.
var (
	errExpression = errors.New("the expression cannot be evaluated")
	errNoMember   = errors.New("a member it selects is not there")
)

// run leaves the context out where nothing can take long: it is looked at between
// the rounds of a loop, and nowhere else.
func (e *expr) run(ctx context.Context, vars *scope) (out ref.Val, err error) {
	if e.loops {
		out, _, err = e.program.ContextEval(ctx, vars)
	} else {
		out, _, err = e.program.Eval(vars)
	}
	return out, err
}

// eval runs the expression. It gives nil if that fails: CEL's own errors may
// quote data, so only the fact is passed on. The error is the context's alone.
func (e *expr) eval(ctx context.Context, vars *scope) (ref.Val, error) {
	out, err := e.run(ctx, vars)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("evaluate expression: %w", ctx.Err())
	}
	if err != nil || types.IsUnknownOrError(out) {
		out = nil
	}
	return out, nil
}

// token evaluates the expression to raw JSON. ok is false if it gives none.
func (e *expr) token(ctx context.Context, vars *scope) (raw []byte, ok bool, err error) {
	if e.plain != nil {
		return e.plain.walk(vars)
	}
	out, err := e.eval(ctx, vars)
	if err == nil && out == nil {
		err = errExpression
	}
	if err != nil {
		return nil, false, err
	}
	if opt, isOpt := out.(*types.Optional); isOpt {
		if !opt.HasValue() {
			return nil, false, nil
		}
		out = opt.GetValue()
	}
	raw, err = appendJSON(nil, out)
	return raw, err == nil, err
}
