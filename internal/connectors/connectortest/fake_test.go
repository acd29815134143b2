package connectortest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/connectortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFakeIsAConnectorLikeAnyOther(t *testing.T) {
	f := connectortest.NewFake()
	say := func(name string, status int, o connectors.Outcome) connectortest.Case {
		return connectortest.Case{
			Name: name, Action: "create_thing", Params: `{"a":1.10}`,
			Answer: connectors.Answer{Status: status, Header: http.Header{}}, Outcome: o,
		}
	}
	unknown := say("unknown", 500, connectors.Unknown)
	unknown.Rule = connectors.NoRule
	for _, one := range []connectortest.Case{
		say("done", 201, connectors.Succeeded), say("refused", 422, connectors.Refused),
		say("later", 429, connectors.Retryable), say("credential", 401, connectors.Retryable), unknown,
	} {
		op := connectortest.Op(t, f, one.Action, one.Params)
		v, err := f.Judge(t.Context(), op, one.Answer)
		require.NoError(t, err)
		require.Equal(t, one.Outcome, v.Outcome, one.Name)
		require.Equal(t, one.Rule, v.Rule, one.Name)
	}
	op := connectortest.Op(t, f, "create_thing", `{"a":1.10}`)
	r, err := f.Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, "https://vendor.example/things", r.URL)
	require.Equal(t, `{"a":1.10}`, string(r.Body))
	require.Len(t, f.Planned(), 1)
	require.Len(t, f.Judged(), 5)
	steps, err := f.Check(t.Context(), op)
	require.NoError(t, err)
	require.Empty(t, steps)
	found, err := f.MatchLookup(t.Context(), op, 0, connectors.Answer{})
	require.NoError(t, err)
	require.Equal(t, connectors.Doubtful, found.Kind)
	op.Action = "other"
	_, err = f.Plan(t.Context(), op)
	require.ErrorIs(t, err, connectors.ErrUnknownAction)
}
