package manifest

import (
	"context"
	"fmt"

	"cel.dev/cel-go/common/types"

	"holdfast.dev/gateway/internal/connectors"
)

// testCall is a compiled test of a connection.
type testCall struct {
	request *request
	ok      *expr // nil: any 2xx
}

func (b *builder) test(f *fileTest) *testCall {
	if f == nil {
		return nil
	}
	if get := f.Request.Method == "GET" && absent(&f.Request.Body); !get && f.Reads == "" {
		b.add("/test/request", "a test only reads: its method is GET, and it has no body; for any other add reads, a link to the vendor's page that says that this request changes nothing")
	}
	requests := b.requests
	requests.lookup, requests.members = true, b.configOnly
	return &testCall{
		request: requests.compile(f.Request, "/test/request"),
		ok:      b.expression(f.OK, "/test/ok", wantBool, b.configOnly),
	}
}

// configOnly is a check of expressions that stand beside no write.
func (b *builder) configOnly(pointer string, e *expr) {
	for _, name := range []string{varParams, varMarker, varMark, varKey, varUnix, varRFC3339} {
		if e.reads[name] {
			b.add(pointer, "a test is about a connection and no write: of what a request is made from it has config alone")
			return
		}
	}
	b.members(nil)(pointer, e)
}

// PlanTest implements connectors.Connector.
func (c *connector) PlanTest(ctx context.Context, config []byte, baseURL string) (connectors.Request, error) {
	vars, err := c.testScope(config)
	if err != nil {
		return connectors.Request{}, err
	}
	vars.op.BaseURL = baseURL
	return c.plan(ctx, c.test.request, vars)
}

// JudgeTest implements connectors.Connector.
func (c *connector) JudgeTest(ctx context.Context, config []byte, ans connectors.Answer) (bool, error) {
	vars, err := c.testScope(config)
	if err != nil {
		return false, err
	}
	r := read(ans)
	if c.test.ok == nil {
		return ans.Status >= 200 && ans.Status < 300 && !r.garbled(), nil
	}
	out, err := c.test.ok.eval(ctx, vars.with(&r))
	if err != nil {
		return false, fmt.Errorf("judge test: %w", err)
	}
	return out == types.True, nil
}

func (c *connector) testScope(config []byte) (*scope, error) {
	if c.test == nil {
		return nil, fmt.Errorf("%w: the connector has no test", connectors.ErrPlan)
	}
	if len(config) == 0 {
		config = []byte("{}")
	}
	settings := objectValue(config)
	if settings == nil {
		return nil, errConfig
	}
	return &scope{config: settings}, nil
}
