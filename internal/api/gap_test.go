package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/loss"
)

// Whatever was run just now may have been run before, in a time the store does
// not know; what is replayed is known.
func TestLedgerGapIsToldOfWhatIsNew(t *testing.T) {
	gap := &loss.Gap{From: created.Add(-time.Hour), To: created}
	g := newGateway(t, func(c *api.Config) { c.Gap = func() *loss.Gap { return gap } })
	const told = `"ledger_gap":{"from":"2026-11-29T15:04:05.678Z","to":"2026-11-29T16:04:05.678Z"}`

	ok := actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{}`)}
	g.replies(ok)
	require.Contains(t, string(g.send("POST", "/v1/do", smallest).body), told)
	ok.Replayed = true
	g.replies(ok)
	require.NotContains(t, string(g.send("POST", "/v1/do", smallest).body), "ledger_gap")

	rec := succeeded()
	rec.State = dedupe.Refused
	refused := &actions.Error{Code: actions.VendorRefused, Record: rec}
	require.Contains(t, string(g.answerWith(refused).body), told)
	refused.Replayed = true
	require.NotContains(t, string(g.answerWith(refused).body), "ledger_gap")
	require.NotContains(t, string(g.answerWith(&actions.Error{Code: actions.KeyReused, Record: rec}).body), "ledger_gap")
	require.NotContains(t, string(g.answerWith(&actions.Error{Code: actions.Forbidden}).body), "ledger_gap")

	g.replies(actions.Reply{Would: "execute"})
	dry := string(g.send("POST", "/v1/do", `{"connection":"c","action":"a","dry_run":true}`).body)
	require.Contains(t, dry, `"would":"execute"`)
	require.Contains(t, dry, told)
	gap = nil
	g.replies(actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{}`)})
	require.NotContains(t, string(g.send("POST", "/v1/do", smallest).body), "ledger_gap")
}
