package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// TestCorrelationCanBeSwitchedOff: what is written then carries no marker, and the
// connection and the held answer say what is lost by that.
func TestCorrelationCanBeSwitchedOff(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		vendor := vendortest.New(t, func(c *vendortest.Call) { c.ReadBody(); c.Reset() })
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "sandbox@1", vendor.URL())
		require.Equal(t, "true", a.must(200, "GET", "/v1/connections/c", nil).text("correlation"))
		write := func(customer string) (reply, vendortest.Arrival) {
			r := a.do("c", "create_invoice", `{"customer":"`+customer+`","amount":1,"currency":"EUR"}`).is(423, "outcome_unknown")
			all := vendor.Requests()
			return r, all[len(all)-1]
		}
		with, sent := write("with")
		require.Contains(t, string(sent.Body), `"marker":"`)
		require.Equal(t, "lookup", with.text("check.how"))

		r := a.must(200, "PUT", "/v1/connections/c", `{"correlation":false}`)
		require.Equal(t, "false", r.text("correlation"))
		require.Contains(t, r.text("notice"), "cannot be found by its marker")
		require.Equal(t, []string{"connection.updated"}, a.events("event=connection.updated"))
		without, sent := write("without")
		require.NotContains(t, string(sent.Body), "marker")
		require.Equal(t, "manual", without.text("check.how"))
		require.Contains(t, without.text("check.detail"), "correlation is off")
		again := a.do("c", "create_invoice", `{"customer":"without","amount":1,"currency":"EUR"}`).is(423, "outcome_unknown")
		require.Contains(t, again.text("check.detail"), "correlation is off", "every held answer says so")
		// What was claimed with a marker is looked for by it, whatever the connection says now.
		require.Equal(t, "lookup", a.must(200, "GET", "/v1/actions/"+with.text("action_id"), nil).text("check.how"))

		// A vendor whose search shows nothing proves nothing about such a write.
		vendor.Use(func(c *vendortest.Call) { c.JSON(200, `{"data":[]}`) })
		eventually(t, 10*time.Second, "it may be checked", func() bool {
			r = a.call("POST", "/v1/actions/"+without.text("action_id")+"/check", nil)
			return r.status == 200
		})
		require.Equal(t, "still_unknown", r.text("verdict"), "%s", r.raw)
		require.Equal(t, "manual", r.text("action.check.how"))
	})
}

// TestAConnectorThatNeedsItsMarker refuses to go without.
func TestAConnectorThatNeedsItsMarker(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir() + "/data"
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	vendor := vendortest.New(t, vendortest.OK)
	body := map[string]any{"connector": "probe-marked@1", "base_url": vendor.URL(), "correlation": false,
		"credentials": map[string]string{"token": sentinel}}
	a.call("PUT", "/v1/connections/c", body).is(400, "invalid_request")
	delete(body, "correlation")
	a.must(201, "PUT", "/v1/connections/c", body)
	a.call("PUT", "/v1/connections/c", `{"correlation":false}`).is(400, "invalid_request")
	a.do("c", "create", `{"n":1}`).is(200, "succeeded")
}
