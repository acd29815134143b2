package api_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// manyConnections lists connections as the book does: by the cursor of the last.
func manyConnections(all []connections.Connection) func(string, int) ([]connections.Connection, string, error) {
	return func(cursor string, limit int) ([]connections.Connection, string, error) {
		from := 0
		for i, c := range all {
			if c.Cursor() == cursor {
				from = i + 1
			}
		}
		if from == 0 && cursor != "" {
			return nil, "", connections.ErrCursor
		}
		page := all[from:min(from+limit, len(all))]
		if from+limit < len(all) {
			return page, page[len(page)-1].Cursor(), nil
		}
		return page, "", nil
	}
}

func withTools(name string, on bool) connections.Connection {
	c := connection()
	c.Name, c.ID, c.MCPTools = name, "con_"+name, on
	return c
}

// toolsOf pages through the list.
func toolsOf(t *testing.T, g *gateway, limit int) (names []string, pages int) {
	t.Helper()
	for cursor := ""; ; {
		a := g.send("GET", fmt.Sprintf("/v1/tools?limit=%d&cursor=%s", limit, cursor), "")
		require.Equal(t, 200, a.status, "%s", a.body)
		pages++
		data, _ := a.json()["data"].([]any)
		require.LessOrEqual(t, len(data), limit)
		for _, item := range data {
			item := item.(map[string]any)
			names = append(names, item["connection"].(string)+" "+item["action"].(map[string]any)["name"].(string))
		}
		next, more := a.json()["next_cursor"].(string)
		if !more {
			return names, pages
		}
		cursor = next
	}
}

func TestTools(t *testing.T) {
	g := newGateway(t)
	g.specs = func() []connectors.Spec { return []connectors.Spec{stripe("1.2.0")} }
	gone := withTools("gone", true)
	gone.Closing = true
	other := withTools("other", true)
	other.Connector = "unloaded@1"
	g.conns.list = manyConnections([]connections.Connection{
		withTools("a", true), withTools("off", false), gone, other, withTools("b", true), withTools("c", true),
	})
	every := []string{
		"a create_customer", "a create_invoice", "b create_customer", "b create_invoice", "c create_customer", "c create_invoice",
	}
	for limit := 1; limit <= 7; limit++ {
		names, pages := toolsOf(t, g, limit)
		require.Equal(t, every, names, "pages of %d", limit)
		require.Equal(t, (len(every)+limit-1)/limit, pages)
	}
	a := g.send("GET", "/v1/tools?limit=2", "")
	require.Contains(t, string(a.body), `{"connection":"a","action":{"name":"create_customer","description":"d","effect":"create",`)
	require.Equal(t, "invalid_request", g.send("GET", "/v1/tools?cursor=x~y", "").code())
	require.Equal(t, "invalid_request", g.send("GET", "/v1/tools?limit=0", "").code())
}

// A page ends after so many connections that offer nothing, and says where to go on.
func TestToolsBehindManyConnectionsWithoutAny(t *testing.T) {
	g := newGateway(t)
	g.specs = func() []connectors.Spec { return []connectors.Spec{stripe("1.2.0")} }
	var all []connections.Connection
	for i := range 1050 {
		all = append(all, withTools(fmt.Sprintf("c%d", i), false))
	}
	g.conns.list = manyConnections(append(all, withTools("last", true)))
	names, pages := toolsOf(t, g, 50)
	require.Equal(t, []string{"last create_customer", "last create_invoice"}, names)
	require.Equal(t, 2, pages)
}

// A key sees what it may run.
func TestToolsAreThoseTheKeyMayRun(t *testing.T) {
	g := newGateway(t)
	g.specs = func() []connectors.Spec { return []connectors.Spec{stripe("1.2.0")} }
	g.conns.list = manyConnections([]connections.Connection{withTools("a", true), withTools("b", true)})
	for _, row := range []struct {
		who  tenants.Principal
		want []string
	}{
		{someTenant(tenants.ScopeRead, tenants.ScopeManage), nil},
		{granted(tenants.Grant{Connection: "b"}), []string{"b create_customer", "b create_invoice"}},
		{granted(tenants.Grant{Connection: "a", Actions: []string{"create_invoice"}}, tenants.Grant{Connection: "none"}), []string{"a create_invoice"}},
	} {
		g.authenticate = func(string) (tenants.Principal, error) { return row.who, nil }
		names, _ := toolsOf(t, g, 1)
		require.Equal(t, row.want, names)
	}
}

func granted(grants ...tenants.Grant) tenants.Principal {
	p := someTenant(tenants.ScopeDo)
	p.Grants = grants
	return p
}

func TestToolsWhenTheStoreIsAway(t *testing.T) {
	g := newGateway(t)
	g.specs = func() []connectors.Spec { return nil }
	g.conns.list = func(string, int) ([]connections.Connection, string, error) { return nil, "", ledger.ErrUnavailable }
	require.Equal(t, "store_unavailable", g.send("GET", "/v1/tools", "").code())
}
