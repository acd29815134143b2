package manifest

import (
	"context"
	"fmt"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"holdfast.dev/gateway/internal/connectors"
)

// lookup is a compiled lookup; nil stands for a resend.
type lookup struct {
	request *request
	match   *expr
	result  *tree // of the one match, which is body there; nil: the match itself
}

func (b *builder) checks(a *action, list []fileCheck, pointer string, requests requestCompiler) {
	requests.lookup = true
	members := requests.members
	for i, f := range list {
		at := pointerAt(pointer, i)
		if f.Resend != nil {
			a.spec.Checks = append(a.spec.Checks, b.resend(a, f.Resend.Within, at+"/resend/within"))
			a.lookups = append(a.lookups, nil)
		}
		if f.Lookup == nil {
			continue
		}
		at += "/lookup"
		// GraphQL and some searches read with POST. Nothing here can tell those
		// from writes, so an author must point at the page that does.
		if get := f.Lookup.Request.Method == "GET" && absent(&f.Lookup.Request.Body); !get && f.Lookup.Reads == "" {
			b.add(at+"/request", "a lookup only reads: its method is GET, and it has no body; for any other add reads, a link to the vendor's page that says that this request changes nothing")
		}
		rule := connectors.CheckRule{
			Kind: connectors.Lookup, Settle: b.duration(at+"/settle", f.Lookup.Settle),
			Match: f.Lookup.Match, Absent: connectors.Absent(f.Lookup.Absent),
		}
		if rule.Absent == connectors.NotPerformed && rule.Settle < minSettle {
			b.add(at+"/settle", "absence proves something only after the vendor's own time limit has passed; %s is too short", rule.Settle)
		}
		byMarker := func(pointer string, e *expr) {
			members(pointer, e)
			rule.ByMarker = rule.ByMarker || e.reads[varMarker]
		}
		requests.members = byMarker
		l := &lookup{
			request: requests.compile(f.Lookup.Request, at+"/request"),
			match:   b.expression(f.Lookup.Match, at+"/match", wantList, byMarker),
			result:  b.result(&f.Lookup.Result, at+"/result", members),
		}
		if l.result == nil {
			l.result = a.result
		}
		a.spec.Checks = append(a.spec.Checks, rule)
		a.lookups = append(a.lookups, l)
	}
}

// resend checks that the vendor promises what a resend relies on.
func (b *builder) resend(a *action, within, pointer string) connectors.CheckRule {
	rule := connectors.CheckRule{Kind: connectors.Resend, Within: b.duration(pointer, within)}
	switch i := a.spec.Idempotency; {
	case i == nil || !i.Documented:
		b.add(pointer, "a resend needs an idempotency rule of strength documented")
	case i.Retention == 0:
		b.add(pointer, "a resend needs a retention the vendor promises")
	case rule.Within >= i.Retention:
		b.add(pointer, "within must be shorter than the retention, %s", i.Retention)
	}
	return rule
}

// find reads a lookup's answer.
func (l *lookup) find(ctx context.Context, vars *scope, ans reading) (connectors.Found, error) {
	doubtful := connectors.Found{Kind: connectors.Doubtful}
	// Only an answer that is a success, or one the expression asks about, can
	// show that something is not there.
	if ans.Status < 200 || ans.Status > 599 || ans.garbled() || ans.Status > 299 && !l.match.reads[varStatus] {
		return doubtful, nil
	}
	out, err := l.match.eval(ctx, vars)
	if err != nil {
		return doubtful, fmt.Errorf("match lookup: %w", err)
	}
	list, ok := out.(traits.Lister)
	if !ok {
		return doubtful, nil
	}
	size, ok := list.Size().(types.Int)
	if !ok {
		return doubtful, nil
	}
	switch size {
	case 0:
		return connectors.Found{Kind: connectors.FoundNone}, nil
	case 1:
		return l.one(ctx, vars, list.Get(types.IntZero))
	default:
		return connectors.Found{Kind: connectors.FoundMany, Matches: int(size)}, nil
	}
}

// one projects the match. In a lookup's result body is the match: the same
// projection then serves an answer and a record in a list.
func (l *lookup) one(ctx context.Context, vars *scope, match ref.Val) (connectors.Found, error) {
	doubtful := connectors.Found{Kind: connectors.Doubtful}
	raw := rawJSON(match)
	if raw == nil {
		return doubtful, nil
	}
	found := connectors.Found{Kind: connectors.FoundOne, Matches: 1, Result: raw}
	if l.result == nil {
		return found, nil
	}
	vars.body = newValue(raw)
	found.Result = project(ctx, l.result, vars)
	if ctx.Err() != nil {
		return doubtful, fmt.Errorf("match lookup: %w", ctx.Err())
	}
	return found, nil
}
