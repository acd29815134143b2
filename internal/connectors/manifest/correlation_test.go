package manifest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

// A write without correlation carries nothing of ours but the vendor's own key,
// and what knows it by the marker finds nothing out.
func TestCorrelationCanBeLeftOut(t *testing.T) {
	c := mustCompile(t, vary(t, "body: {id: {$: params.id}}",
		`body: {id: {$: params.id}, m: {$opt: "op.correlate ? optional.of(op.marker) : optional.none()"}}`))
	require.False(t, c.Spec().Actions["make"].MarkerFixed)
	op := makeOp(`{"id":"x"}`)
	with, err := c.Plan(t.Context(), op)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"x","m":"`+marker+`"}`, string(with.Body))
	op.Uncorrelated = true
	without, err := c.Plan(t.Context(), op)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"x"}`, string(without.Body))
	require.Equal(t, with.Header.Get("Idempotency-Key"), without.Header.Get("Idempotency-Key"))

	steps, err := c.Check(t.Context(), op)
	require.NoError(t, err)
	require.True(t, steps[0].Usable(op), "the vendor's key tells all the same")
	require.False(t, steps[1].Usable(op))
	require.Len(t, c.Spec().Actions["make"].UsableChecks(op), 1)
	nothing := connectors.Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(`{"data":[]}`), Whole: true}
	found, err := c.MatchLookup(t.Context(), op, 1, nothing)
	require.NoError(t, err)
	require.Equal(t, connectors.Doubtful, found.Kind, "not to find what was not left there proves nothing")
}

func TestAManifestThatCannotDoWithoutTheMarker(t *testing.T) {
	c := mustCompile(t, vary(t, "body: {id: {$: params.id}}", `body: {id: {$: params.id}, m: {$: op.marker}}`))
	require.True(t, c.Spec().Actions["make"].MarkerFixed)
	require.False(t, mustCompile(t, small).Spec().Actions["make"].MarkerFixed)
}
