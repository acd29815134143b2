package manifest

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

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
	return c.plan(ctx, a.request, op, vars)
}

func (c *connector) Judge(ctx context.Context, op connectors.Op, ans connectors.Answer) (connectors.Verdict, error) {
	a, vars, err := c.prepare(op)
	if err != nil {
		return connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtConnector, Rule: connectors.NoRule}, err
	}
	r := read(ans)
	return a.judge(ctx, vars.with(r), r)
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
			if step.Request, err = c.plan(ctx, l.request, op, vars); err != nil {
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
	return a.lookups[step].find(ctx, vars.with(r), r)
}

// markers are safe to plant anywhere: in a URL, a header, a comment.
var markers = regexp.MustCompile(`^[a-z0-9]{16,64}$`)

// prepare finds the action and makes the variables every expression has.
func (c *connector) prepare(op connectors.Op) (*action, scope, error) {
	a, ok := c.actions[op.Action]
	if !ok {
		return nil, nil, connectors.ErrUnknownAction
	}
	if !markers.MatchString(op.Marker) {
		return nil, nil, fmt.Errorf("%w: the marker is not one", connectors.ErrPlan)
	}
	params, ok := objectValue(op.Params)
	if !ok {
		return nil, nil, connectors.Invalid("", "the body must be an object")
	}
	config := op.Config
	if len(config) == 0 {
		config = []byte("{}")
	}
	settings, ok := objectValue(config)
	if !ok {
		return nil, nil, fmt.Errorf("%w: the connection's config is not an object", connectors.ErrPlan)
	}
	return a, scope{
		varParams:  params,
		varConfig:  settings,
		varMarker:  types.String(op.Marker),
		varMark:    types.Bool(!op.Uncorrelated),
		varKey:     types.String(op.VendorKey),
		varUnix:    types.Int(op.Started.Unix()),
		varRFC3339: types.String(op.Started.UTC().Format(time.RFC3339)),
	}, nil
}

// with adds the variables of an answer.
func (s scope) with(ans reading) scope {
	s[varStatus] = types.Int(ans.Status)
	s[varHeaders] = types.DefaultTypeAdapter.NativeToValue(headerMap(ans.Header))
	s[varBody] = ans.value()
	return s
}

func objectValue(raw []byte) (ref.Val, bool) {
	if !soundJSON(raw) {
		return nil, false
	}
	v, ok := newValue(raw).(*object)
	return v, ok
}

func (c *connector) plan(ctx context.Context, r *request, op connectors.Op, vars scope) (connectors.Request, error) {
	base := op.BaseURL
	if base == "" {
		base = c.spec.BaseURL.Default
	}
	if _, _, err := connectors.SplitBaseURL(base); err != nil {
		return connectors.Request{}, fmt.Errorf("%w: %w", connectors.ErrPlan, err)
	}
	return r.plan(renderer{ctx: ctx, vars: vars}, base)
}
