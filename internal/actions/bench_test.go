package actions_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/builtin"
	"holdfast.dev/gateway/internal/connectors/manifest"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/wire"
)

// BenchmarkDo is what a `do` costs beside the store and the wire: identity, input,
// plan, claim, record, rows, judging, answer.
func BenchmarkDo(b *testing.B) {
	ring, err := seal.Parse(seal.Generate())
	require.NoError(b, err)
	store := taking{at: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	answer := answered(201, "application/json", document(0))
	answer.Header.Set("Date", "Sun, 01 Mar 2026 12:00:00 GMT")
	answer.Header.Set("Content-Length", "300")
	svc, err := actions.New(actions.Config{
		Claims: dedupe.New(dedupe.Config{Store: store, Lease: lease, History: 30 * 24 * time.Hour}),
		Keys:   &keys{}, Accounts: &accounts{
			conn:  connections.Connection{ID: "con_01J9ZK3N2YB8W1V6Q4T0", Name: "c", Connector: "http-json@1", BaseURL: "http://127.0.0.1:1234"},
			creds: map[string]string{"token": token},
		},
		Catalog: &catalog{connector: httpJSON(b), claimable: true},
		Sealer:  ring, Sender: echo(answer), Journal: audit.NewLog(store), Ready: func() error { return nil },
		Window: window, MaxResult: 1 << 20, Metrics: actions.NewMetrics(prometheus.NewRegistry()),
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	b.Cleanup(func() { svc.Close(context.Background()) })
	req := actions.Request{
		Principal: tenants.Principal{
			Tenant: "acme", TenantID: "ten_1", Scope: scope, KeyID: "key_1",
			Scopes: []tenants.KeyScope{tenants.ScopeDo},
		},
		Connection: "c", Action: "create", RequestID: "req_1", Front: "rest",
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		req.Body = []byte(`{"collection":"things","document":` + document(i) + `}`)
		if _, err := svc.Do(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

// document is JSON of 300 bytes.
func document(i int) string {
	head, tail := `{"id":`+strconv.Itoa(1_000_000+i)+`,"amount":1250,"note":"`, `"}`
	return head + strings.Repeat("y", 300-len(head)-len(tail)) + tail
}

func httpJSON(b *testing.B) connectors.Connector {
	b.Helper()
	sources, err := builtin.Manifests()
	require.NoError(b, err)
	for _, source := range sources {
		if strings.HasSuffix(source.File, "/http-json.yaml") {
			compile, err := manifest.NewCompiler()
			require.NoError(b, err)
			c, err := compile.Compile(source.Manifest)
			require.NoError(b, err)
			return c
		}
	}
	b.Fatal("no such connector")
	return nil
}

// taking is a store that takes every step and keeps none.
type taking struct {
	ledger.Store
	at time.Time
}

func (s taking) Now() time.Time { return s.at }

func (s taking) Apply(_ context.Context, _ ledger.Scope, step ledger.Step) (ledger.Result, error) {
	return ledger.Result{Snapshot: ledger.Snapshot{Now: s.at}, Applied: true, Counters: make([]int64, len(step.Add))}, nil
}

// echo is a vendor that always says the same.
type echo wire.Exchange

func (e echo) Send(_ context.Context, _ wire.Request, permit wire.Permit) wire.Exchange {
	if permit() != nil {
		return wire.Exchange{Phase: wire.NotSent, Reason: wire.ReasonNotPermitted}
	}
	return wire.Exchange(e)
}
