package manifest

import (
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"holdfast.dev/gateway/internal/connectors"
)

// rule is a compiled outcome rule.
type rule struct {
	when       *expr
	is         connectors.Outcome
	code       *expr
	message    *expr
	retryAfter *expr
	reason     connectors.Reason
}

func (b *builder) rule(f fileOutcome, pointer string, members func(string, *expr)) rule {
	r := rule{
		when:       b.expression(f.When, child(pointer, "when"), wantBool, members),
		is:         connectors.Outcome(f.Is),
		code:       b.expression(f.Code, child(pointer, "code"), wantAny, members),
		message:    b.expression(f.Message, child(pointer, "message"), wantAny, members),
		retryAfter: b.expression(f.RetryAfter, child(pointer, "retry_after"), wantAny, members),
		reason:     connectors.Reason(f.Reason),
	}
	if r.is != connectors.Retryable {
		if f.Reason != "" {
			b.add(child(pointer, "reason"), "only a retryable outcome has a reason")
		}
		if f.RetryAfter != "" {
			b.add(child(pointer, "retry_after"), "only a retryable outcome has a retry_after")
		}
	}
	if f.Doc == "" && (r.is == connectors.Refused || r.is == connectors.Retryable) {
		b.ambiguous(r.when, pointer)
	}
	return r
}

func (b *builder) expression(source, pointer string, w want, members func(string, *expr)) *expr {
	if source == "" {
		return nil
	}
	e, err := compileExpr(b.envs.answer, source, w)
	if err != nil {
		b.add(pointer, "%v", err)
		return nil
	}
	members(pointer, e)
	return e
}

// partialEval lets an expression run with variables that are not known.
var partialEval = []cel.ProgramOption{cel.EvalOptions(cel.OptPartialEval), cel.CostLimit(costLimit)}

// ambiguous notes a rule that says "not done" for a status that does not mean
// it by itself, 408 or any 5xx: such a rule must name the vendor's page that
// promises it.
func (b *builder) ambiguous(when *expr, pointer string) {
	if when == nil {
		return
	}
	program, err := b.envs.answer.Program(when.checked, partialEval...)
	if err != nil {
		b.add(pointer+"/when", "the expression cannot be run: %v", err)
		return
	}
	for status := 408; status < 600; status++ {
		if status == 409 {
			status = 500
		}
		if b.mayMatch(program, status) {
			b.add(pointer, "this says that nothing was done, and may match status %d, after which much may have been: add doc, a link to the vendor's page that promises it, or narrow the rule", status)
			return
		}
	}
}

// mayMatch says whether a rule can match a status, whatever the answer holds
// besides: everything but the status is unknown to it.
func (b *builder) mayMatch(program cel.Program, status int) bool {
	vars, err := b.envs.answer.PartialVars(map[string]any{varStatus: types.Int(status)})
	if err != nil {
		return true
	}
	out, _, err := program.Eval(vars)
	return err != nil || out != types.False
}

func pointerAt(pointer string, index int) string { return child(pointer, strconv.Itoa(index)) }

var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// splitPointer takes a JSON Pointer apart.
func splitPointer(p string) []string {
	var path []string
	for _, segment := range strings.Split(p, "/")[1:] {
		path = append(path, pointerUnescapes.Replace(segment))
	}
	return path
}
