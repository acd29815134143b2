package api_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
)

func connection() connections.Connection {
	return connections.Connection{ID: "con_1", Name: "billing", Connector: "stripe@1", Config: []byte(`{"n":1.0}`), BaseURL: "https://api.stripe.com",
		CreatedAt: created, UpdatedAt: created, CredentialNames: []string{"api_key"}, Fingerprint: "00ff00ff00ff00ff"}
}

const connectionJSON = `{"name":"billing","id":"con_1","connector":"stripe@1","config":{"n":1.0},"base_url":"https://api.stripe.com","paused":false,"auto_resend":false,"mcp_tools":false,"send_trace":false,"correlation":true,` +
	`"credentials":{"names":["api_key"],"fingerprint":"00ff00ff00ff00ff"},"created_at":"2026-11-29T16:04:05.678Z","updated_at":"2026-11-29T16:04:05.678Z"}`

func TestConnections(t *testing.T) {
	g := newGateway(t)
	var got connections.Spec
	fresh := true
	g.conns.put = func(c audit.Caller, name string, s connections.Spec) (connections.Connection, bool, error) {
		require.Equal(t, audit.Actor{Kind: "key", KeyID: "k1"}, c.Actor)
		require.Equal(t, "acme", c.Tenant)
		require.Equal(t, "rest", c.Front)
		require.NotEmpty(t, c.RequestID)
		require.Equal(t, "billing", name)
		got = s
		return connection(), fresh, nil
	}
	a := g.send("PUT", "/v1/connections/billing", `{"connector":"stripe@1","config":{ "n":1.0 },"credentials":{"api_key":"sentinel-credential"},"base_url":"https://api.stripe.com","paused":false}`)
	require.Equal(t, 201, a.status)
	require.Equal(t, connectionJSON, string(a.body))
	no := false
	require.Equal(t, connections.Spec{Connector: "stripe@1", Config: []byte(`{ "n":1.0 }`), BaseURL: "https://api.stripe.com",
		Credentials: connections.Credentials{"api_key": "sentinel-credential"}, Paused: &no}, got)
	require.NotContains(t, g.logs.String(), "sentinel")

	fresh = false
	require.Equal(t, 200, g.send("PUT", "/v1/connections/billing", `{"auto_resend":true}`).status)
	yes := true
	require.Equal(t, connections.Spec{AutoResend: &yes}, got, "what is left out is left alone")
	require.Equal(t, 200, g.send("PUT", "/v1/connections/billing", `{"send_trace":true}`).status)
	require.Equal(t, connections.Spec{SendTrace: &yes}, got)

	g.conns.get = func(string) (connections.Connection, error) { return connection(), nil }
	require.Equal(t, connectionJSON, string(g.send("GET", "/v1/connections/billing", "").body))
	g.conns.list = func(cursor string, limit int) ([]connections.Connection, string, error) {
		require.Equal(t, "c", cursor)
		require.Equal(t, 7, limit)
		return []connections.Connection{connection()}, "n", nil
	}
	require.Equal(t, `{"data":[`+connectionJSON+`],"next_cursor":"n"}`, string(g.send("GET", "/v1/connections?limit=7&cursor=c", "").body))
	g.conns.remove = func(string) error { return nil }
	a = g.send("DELETE", "/v1/connections/billing", "")
	require.Equal(t, 204, a.status)
	require.Empty(t, a.body)
}

func TestConnectionRefusals(t *testing.T) {
	for _, row := range []struct {
		err      error
		code     string
		pointers []string
	}{
		{&connections.SpecError{Pointer: "/config/a", Reason: "r"}, "invalid_request", []string{"/config/a"}},
		{&connections.SpecError{Reason: "r"}, "invalid_request", nil},
		{fmt.Errorf("base_url: %w", connections.ErrFixed), "connection_fixed", nil},
		{connections.ErrUnsettled, "unsettled_writes", nil},
		{connections.ErrNotFound, "not_found", nil},
		{fmt.Errorf("x: %w", connections.ErrUnreadable), "stored_answer_unreadable", nil},
		{fmt.Errorf("x: %w", ledger.ErrUnavailable), "store_unavailable", nil},
		{fmt.Errorf("x: %w", ledger.ErrNotReady), "store_unavailable", nil},
		{fmt.Errorf("x: %w", audit.ErrClosed), "unauthenticated", nil},
		{errors.New("x"), "internal", nil},
	} {
		g := newGateway(t)
		g.conns.put = func(audit.Caller, string, connections.Spec) (connections.Connection, bool, error) {
			return connections.Connection{}, false, row.err
		}
		g.conns.remove = func(string) error { return row.err }
		method, body := "PUT", `{}`
		if row.code == "unsettled_writes" || row.code == "not_found" {
			method, body = "DELETE", ""
		}
		a := g.send(method, "/v1/connections/billing", body)
		require.Equal(t, row.code, a.code())
		require.Equal(t, row.pointers, pointersOf(a))
	}
	for body, pointer := range map[string]string{
		`{"credentials":{"api_key":1}}`: "/credentials/api_key",
		`{"credentials":null}`:          "/credentials",
		`{"paused":null}`:               "/paused",
		`{"secret":"x"}`:                "/secret",
	} {
		g := newGateway(t)
		require.Equal(t, []string{pointer}, pointersOf(g.send("PUT", "/v1/connections/billing", body)))
	}
}
