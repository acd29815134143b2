package connectortest

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	"holdfast.dev/gateway/internal/connectors"
)

// Fake is a Connector that does what a test tells it. A nil function falls back
// on a plain vendor: POST base/things with the params as the body; 2xx is
// succeeded, 4xx refused but 429 and 401 retryable, all else unknown. It counts
// calls and is safe for concurrent use as long as its fields are not changed.
type Fake struct {
	SpecValue connectors.Spec

	PlanFunc   func(ctx context.Context, op connectors.Op) (connectors.Request, error)
	JudgeFunc  func(ctx context.Context, op connectors.Op, a connectors.Answer) (connectors.Verdict, error)
	CheckFunc  func(ctx context.Context, op connectors.Op) ([]connectors.CheckStep, error)
	LookupFunc func(ctx context.Context, op connectors.Op, step int, a connectors.Answer) (connectors.Found, error)

	mu    sync.Mutex
	plans []connectors.Op
	seen  []connectors.Answer
}

var _ connectors.Connector = (*Fake)(nil)

// NewFake returns a Fake named "fake" with one action, create_thing, that takes
// any object. It panics if its own schema does not compile.
func NewFake() *Fake {
	input, err := connectors.CompileSchema([]byte(`{"type":"object"}`))
	if err != nil {
		panic(err)
	}
	return &Fake{SpecValue: connectors.Spec{
		Name: "fake", Version: "1.0.0", Sum: sha256.Sum256([]byte("fake 1.0.0")),
		Auth:    connectors.Auth{Type: connectors.Bearer, Prefix: "Bearer", Secret: "token"},
		BaseURL: connectors.BaseURL{Allow: []string{"https://vendor.example"}, Default: "https://vendor.example"},
		Actions: map[string]connectors.ActionSpec{
			"create_thing": {Name: "create_thing", Effect: "create", Input: input, Timeout: connectors.DefaultTimeout},
		},
	}}
}

// Spec implements connectors.Connector.
func (f *Fake) Spec() connectors.Spec { return f.SpecValue }

// Plan implements connectors.Connector.
func (f *Fake) Plan(ctx context.Context, op connectors.Op) (connectors.Request, error) {
	f.mu.Lock()
	f.plans = append(f.plans, op)
	f.mu.Unlock()
	if f.PlanFunc != nil {
		return f.PlanFunc(ctx, op)
	}
	if _, ok := f.SpecValue.Actions[op.Action]; !ok {
		return connectors.Request{}, connectors.ErrUnknownAction
	}
	base := op.BaseURL
	if base == "" {
		base = f.SpecValue.BaseURL.Default
	}
	header := http.Header{"Content-Type": {"application/json"}, "X-Marker": {op.Marker}}
	return connectors.Request{Method: http.MethodPost, URL: base + "/things", Header: header, Body: append([]byte{}, op.Params...)}, nil
}

// Judge implements connectors.Connector.
func (f *Fake) Judge(ctx context.Context, op connectors.Op, a connectors.Answer) (connectors.Verdict, error) {
	f.mu.Lock()
	f.seen = append(f.seen, a)
	f.mu.Unlock()
	if f.JudgeFunc != nil {
		return f.JudgeFunc(ctx, op, a)
	}
	v := connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtNoRule, Rule: connectors.NoRule}
	switch {
	case a.Status == http.StatusTooManyRequests:
		v = connectors.Verdict{Outcome: connectors.Retryable, Reason: connectors.RateLimit}
	case a.Status == http.StatusUnauthorized:
		v = connectors.Verdict{Outcome: connectors.Retryable, Reason: connectors.Credential}
	case a.Status >= 200 && a.Status < 300:
		v = connectors.Verdict{Outcome: connectors.Succeeded}
	case a.Status >= 400 && a.Status < 500 && a.Status != http.StatusRequestTimeout:
		v = connectors.Verdict{Outcome: connectors.Refused}
	}
	return v, nil
}

// Check implements connectors.Connector. It plans no steps by itself.
func (f *Fake) Check(ctx context.Context, op connectors.Op) ([]connectors.CheckStep, error) {
	if f.CheckFunc != nil {
		return f.CheckFunc(ctx, op)
	}
	return nil, nil
}

// MatchLookup implements connectors.Connector. By itself it is doubtful.
func (f *Fake) MatchLookup(ctx context.Context, op connectors.Op, step int, a connectors.Answer) (connectors.Found, error) {
	if f.LookupFunc != nil {
		return f.LookupFunc(ctx, op, step, a)
	}
	return connectors.Found{Kind: connectors.Doubtful}, nil
}

// PlanTest implements connectors.Connector: GET base/test.
func (f *Fake) PlanTest(_ context.Context, _ []byte, baseURL string) (connectors.Request, error) {
	if !f.SpecValue.Tests {
		return connectors.Request{}, connectors.ErrPlan
	}
	if baseURL == "" {
		baseURL = f.SpecValue.BaseURL.Default
	}
	return connectors.Request{Method: http.MethodGet, URL: baseURL + "/test", Header: http.Header{}}, nil
}

// JudgeTest implements connectors.Connector: any 2xx.
func (f *Fake) JudgeTest(_ context.Context, _ []byte, a connectors.Answer) (bool, error) {
	return a.Status >= 200 && a.Status < 300, nil
}

// Planned returns every op Plan was called with.
func (f *Fake) Planned() []connectors.Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]connectors.Op(nil), f.plans...)
}

// Judged returns every answer Judge was called with.
func (f *Fake) Judged() []connectors.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]connectors.Answer(nil), f.seen...)
}
