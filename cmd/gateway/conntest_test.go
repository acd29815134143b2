package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// TestAConnectionIsTested: the harmless read of its connector is made once, the
// answer says what it came to and nothing of what the vendor said, and the audit
// has it.
func TestAConnectionIsTested(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		vendor := vendortest.New(t, nil)
		app, logged := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe-tested@1", vendor.URL())
		a.connect("untested", "probe@1", vendor.URL())
		a.must(200, "PUT", "/v1/connections/c", `{"paused":true}`)
		const private = "PRIVATE-of-the-vendor"
		for i, c := range []struct {
			vendor  vendortest.Behaviour
			verdict string
			status  string
		}{
			{func(c *vendortest.Call) { c.JSON(200, `{"ok":true,"secret":"`+private+`"}`) }, "passed", "200"},
			{func(c *vendortest.Call) { c.JSON(200, `{"ok":false}`) }, "failed", "200"},
			{func(c *vendortest.Call) { c.JSON(200, `not json`) }, "failed", "200"},
			{func(c *vendortest.Call) { c.JSON(401, `{"why":"`+sentinel+private+`"}`) }, "failed", "401"},
			{func(c *vendortest.Call) { c.Reset() }, "no_answer", ""},
		} {
			vendor.Use(c.vendor)
			r := a.must(200, "POST", "/v1/connections/c/test", nil)
			require.Equal(t, c.verdict, r.text("verdict"), "%s", r.raw)
			require.Equal(t, c.status, r.text("vendor.status"), "%s", r.raw)
			require.Equal(t, i+1, vendor.Arrivals(), "once")
			got := vendor.Requests()[i]
			require.Equal(t, "GET /self", got.Method+" "+got.Target)
			require.Equal(t, "Bearer "+sentinel, got.Header.Get("Authorization"))
			require.NotContains(t, string(r.raw), private)
			require.NotContains(t, string(r.raw), sentinel)
		}
		vendor.Close()
		require.Equal(t, "no_answer", a.must(200, "POST", "/v1/connections/c/test", nil).text("verdict"))
		require.Equal(t, "untested", a.must(200, "POST", "/v1/connections/untested/test", nil).text("verdict"))
		a.call("POST", "/v1/connections/nobodys/test", nil).is(404, "not_found")

		audit := a.must(200, "GET", "/v1/audit?event=connection.tested&order=oldest", nil)
		var verdicts []string
		for _, row := range audit.body["data"].([]any) {
			verdicts = append(verdicts, row.(map[string]any)["outcome"].(string))
			require.Equal(t, "c", row.(map[string]any)["connection"])
		}
		require.Equal(t, "passed failed failed failed no_answer no_answer", strings.Join(verdicts, " "))
		for _, text := range []string{logged.String(), string(audit.raw)} {
			require.NotContains(t, text, private)
			require.NotContains(t, text, sentinel)
		}
		require.Empty(t, a.must(200, "GET", "/v1/actions", nil).body["data"], "a test is no write")
	})
}
