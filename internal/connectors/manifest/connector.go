package manifest

import (
	"context"
	"fmt"

	"holdfast.dev/gateway/internal/connectors"
)

// connector is a compiled manifest.
type connector struct {
	spec    connectors.Spec
	actions map[string]*action
	test    *testCall // nil: there is none
}

var _ connectors.Connector = (*connector)(nil)

func (c *connector) Spec() connectors.Spec { return c.spec }

func (c *connector) Plan(ctx context.Context, op connectors.Op) (connectors.Request, error) {
	a, vars, err := c.prepare(op)
	if err != nil {
		return connectors.Request{}, err
	}
	if (a.spec.Idempotency != nil) != (op.VendorKey != "") {
		return connectors.Request{}, fmt.Errorf("%w: the vendor key does not fit the action", connectors.ErrPlan)
	}
	return c.plan(ctx, a.request, vars)
}

func (c *connector) Judge(ctx context.Context, op connectors.Op, ans connectors.Answer) (connectors.Verdict, error) {
	a, vars, err := c.prepare(op)
	if err != nil {
		return connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtConnector, Rule: connectors.NoRule}, err
	}
	r := read(ans)
	return a.judge(ctx, vars.with(&r), r)
}

func (c *connector) Check(ctx context.Context, op connectors.Op) ([]connectors.CheckStep, error) {
	a, vars, err := c.prepare(op)
	if err != nil {
		return nil, err
	}
	var steps []connectors.CheckStep
	for i, rule := range a.spec.Checks {
		step := connectors.CheckStep{CheckRule: rule}
		if l := a.lookups[i]; l != nil {
			if step.Request, err = c.plan(ctx, l.request, vars); err != nil {
				return nil, err
			}
		}
		steps = append(steps, step)
	}
	return steps, nil
}

func (c *connector) MatchLookup(ctx context.Context, op connectors.Op, step int, ans connectors.Answer) (connectors.Found, error) {
	doubtful := connectors.Found{Kind: connectors.Doubtful}
	a, vars, err := c.prepare(op)
	if err != nil {
		return doubtful, err
	}
	if step < 0 || step >= len(a.lookups) || a.lookups[step] == nil {
		return doubtful, fmt.Errorf("match lookup: %w: no such step", connectors.ErrPlan)
	}
	if !a.spec.Checks[step].Usable(op) {
		return doubtful, nil // there is no marker that could be found
	}
	r := read(ans)
	return a.lookups[step].find(ctx, vars.with(&r), r)
}

// prepare finds the action and makes the scope of its expressions.
func (c *connector) prepare(op connectors.Op) (*action, *scope, error) {
	a, ok := c.actions[op.Action]
	if !ok {
		return nil, nil, connectors.ErrUnknownAction
	}
	if !isMarker(op.Marker) {
		return nil, nil, fmt.Errorf("%w: the marker is not one", connectors.ErrPlan)
	}
	if len(op.Config) == 0 {
		op.Config = []byte("{}")
	}
	params := objectValue(op.Params)
	if params == nil {
		return nil, nil, connectors.Invalid("", "the body must be an object")
	}
	config := objectValue(op.Config)
	if config == nil {
		return nil, nil, errConfig
	}
	return a, &scope{op: op, params: params, config: config}, nil
}

var errConfig = fmt.Errorf("%w: the connection's config is not an object", connectors.ErrPlan)

// isMarker says whether a marker is safe to plant anywhere: in a URL, a header, a
// comment. It has 16 to 64 lower-case letters and digits.
func isMarker(s string) bool {
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return 16 <= len(s) && len(s) <= 64
}

func (c *connector) plan(ctx context.Context, r *request, vars *scope) (connectors.Request, error) {
	base := vars.op.BaseURL
	if base == "" {
		base = c.spec.BaseURL.Default
	}
	if err := connectors.CleanBaseURL(base); err != nil {
		return connectors.Request{}, fmt.Errorf("%w: %w", connectors.ErrPlan, err)
	}
	return r.plan(renderer{ctx: ctx, vars: vars}, base)
}
