package actions

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"holdfast.dev/gateway/internal/connectors"
)

// A panic in one write must not take the process with it, and with the process
// every other write that runs. What it becomes is what the same step failing
// would be: nothing sent before the send, doubt behind it.
var errPanicked = errors.New("panicked")

// caught turns a panic into an error. It is deferred. Only a runtime error is
// put in words: any other value may hold a piece of a body or a credential.
func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case runtime.Error:
		*err = fmt.Errorf("%w: %s", errPanicked, p.Error())
	default:
		*err = fmt.Errorf("%w with a %T", errPanicked, p)
	}
}

// guarded is a connector whose panics are errors.
type guarded struct{ connectors.Connector }

func (g guarded) Plan(ctx context.Context, op connectors.Op) (r connectors.Request, err error) {
	defer caught(&err)
	return g.Connector.Plan(ctx, op)
}

func (g guarded) Judge(ctx context.Context, op connectors.Op, a connectors.Answer) (v connectors.Verdict, err error) {
	defer func() {
		if errors.Is(err, errPanicked) {
			v = connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtConnector, Rule: connectors.NoRule}
		}
	}()
	defer caught(&err)
	return g.Connector.Judge(ctx, op, a)
}

func (g guarded) Check(ctx context.Context, op connectors.Op) (steps []connectors.CheckStep, err error) {
	defer caught(&err)
	return g.Connector.Check(ctx, op)
}

func (g guarded) PlanTest(ctx context.Context, config []byte, baseURL string) (r connectors.Request, err error) {
	defer caught(&err)
	return g.Connector.PlanTest(ctx, config, baseURL)
}

func (g guarded) JudgeTest(ctx context.Context, config []byte, a connectors.Answer) (ok bool, err error) {
	defer func() { ok = ok && !errors.Is(err, errPanicked) }()
	defer caught(&err)
	return g.Connector.JudgeTest(ctx, config, a)
}

func (g guarded) MatchLookup(ctx context.Context, op connectors.Op, step int, a connectors.Answer) (found connectors.Found, err error) {
	defer func() {
		if errors.Is(err, errPanicked) {
			found = connectors.Found{Kind: connectors.Doubtful}
		}
	}()
	defer caught(&err)
	return g.Connector.MatchLookup(ctx, op, step, a)
}
