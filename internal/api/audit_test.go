package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/trail"
)

func TestAudit(t *testing.T) {
	g := newGateway(t)
	row := audit.Row{Event: audit.Claimed, At: created, Tenant: "acme", Actor: audit.Actor{Kind: "key", KeyID: "k1"}, Front: "rest",
		RequestID: "req_1", ActionID: actionID, Connection: "billing", Action: "create_invoice", Meta: map[string]string{"run": `<"é">`}}
	g.query = func(scope ledger.Scope, f audit.Filter, p trail.Page) ([]audit.Entry, string, error) {
		require.Equal(t, ledger.ScopeOf("acme"), scope)
		require.Equal(t, audit.Filter{Event: audit.Claimed, Connection: "billing", Action: "create_invoice", ActionID: actionID, KeyID: "k1",
			Identity: "9f2c000000000000", Outcome: "unknown", Meta: map[string]string{"run": "a b", "step.n": ""},
			Since: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)}, f)
		require.Equal(t, trail.Page{Limit: 3, Newest: false, Cursor: "c"}, p)
		return []audit.Entry{{Row: row}, {Row: audit.Row{At: created}, Unreadable: true}}, "n", nil
	}
	a := g.send("GET", "/v1/audit?event=claimed&connection=billing&action=create_invoice&action_id="+actionID+"&key_id=k1&identity=9f2c000000000000&outcome=unknown&meta.run=a+b&meta.step.n=&since=2026-11-29T00:00:00Z&order=oldest&limit=3&cursor=c", "")
	require.Equal(t, `{"data":[`+string(row.Encode())+`,{"at":"2026-11-29T16:04:05.678Z","unreadable":true}],"next_cursor":"n"}`, string(a.body))

	g.query = func(_ ledger.Scope, f audit.Filter, p trail.Page) ([]audit.Entry, string, error) {
		require.Zero(t, f)
		require.Equal(t, trail.Page{Limit: 50, Newest: true}, p)
		return nil, "", trail.ErrCursor
	}
	a = g.send("GET", "/v1/audit", "")
	require.Equal(t, "invalid_request", a.code())
	require.Contains(t, string(a.body), `"parameter":"cursor"`)
	for _, query := range []string{"event=nothing", "order=up", "state=held", "meta=x", "metal=x", "meta.a=1&meta.a=2", "meta.a=" + strings.Repeat("x", 257),
		"meta." + strings.Repeat("x", 257), manyLabels(17)} {
		require.Equal(t, "invalid_request", g.send("GET", "/v1/audit?"+query, "").code(), query)
	}
	g.query = func(_ ledger.Scope, f audit.Filter, _ trail.Page) ([]audit.Entry, string, error) {
		require.Len(t, f.Meta, 16)
		return nil, "", nil
	}
	require.Equal(t, 200, g.send("GET", "/v1/audit?"+manyLabels(16), "").status)
}

func manyLabels(n int) string {
	var labels []string
	for i := range n {
		labels = append(labels, fmt.Sprintf("meta.%d=", i))
	}
	return strings.Join(labels, "&")
}
