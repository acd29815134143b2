package actions_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/wire"
)

const private = "a word of the body"

// TestEveryAnswerLeavesOneRow: each kind of answer, and the rows of that one
// call: the claim's and the settle's, or the one of what stopped it.
func TestEveryAnswerLeavesOneRow(t *testing.T) {
	body := `{"private":"` + private + `"}`
	noted := func(r *actions.Request) { r.Meta = map[string]string{"run": "7"} }
	succeeded := func(f *fixture) { f.succeeds(body, noted) }
	held := func(f *fixture) {
		f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer})
		f.fails(actions.OutcomeUnknown, body, noted)
	}
	for name, c := range map[string]struct {
		before func(f *fixture)
		change []func(*actions.Request)
		rows   []string
		reason string // of the last
	}{
		"success":     {rows: []string{"claimed", "succeeded"}},
		"refusal":     {before: func(f *fixture) { f.vendor.says(answered(422, "", "")) }, rows: []string{"claimed", "refused"}},
		"release":     {before: func(f *fixture) { f.vendor.says(answered(429, "", "")) }, rows: []string{"claimed", "released"}, reason: "rate_limit"},
		"not sent":    {before: func(f *fixture) { f.vendor.says(wire.Exchange{Phase: wire.NotSent, Reason: "dns"}) }, rows: []string{"claimed", "not_sent"}, reason: "dns"},
		"doubt":       {before: func(f *fixture) { f.vendor.says(answered(500, "", "")) }, rows: []string{"claimed", "held"}, reason: "no_rule"},
		"credentials": {before: func(f *fixture) { f.accounts.credsErr = errBroken }, rows: []string{"claimed", "not_sent"}, reason: "credentials"},
		"replay":      {before: succeeded, rows: []string{"replayed"}},
		"held repeat": {before: held, rows: []string{"held_repeat"}},
		"twin":        {before: held, change: []func(*actions.Request){withKey("k")}, rows: []string{"twin_refused"}},
		"key reused": {before: func(f *fixture) { f.succeeds(`{}`, withKey("k"), noted) }, change: []func(*actions.Request){withKey("k")},
			rows: []string{"key_reused"}},
		"no grant":        {change: []func(*actions.Request){func(r *actions.Request) { r.Principal.Scopes = nil }}, rows: []string{"denied"}, reason: "forbidden"},
		"paused":          {before: func(f *fixture) { f.accounts.conn.Paused = true }, rows: []string{"denied"}, reason: "connection_paused"},
		"suspended":       {change: []func(*actions.Request){suspended}, rows: []string{"denied"}, reason: "tenant_suspended"},
		"unkept":          {before: func(f *fixture) { f.catalog.claimable = false }, rows: []string{"denied"}, reason: "not_sent"},
		"no connection":   {before: func(f *fixture) { f.accounts.getErr = connections.ErrNotFound }, rows: []string{"denied"}, reason: "unknown_connection"},
		"no action":       {change: []func(*actions.Request){func(r *actions.Request) { r.Action = "other" }}, rows: []string{"denied"}, reason: "unknown_action"},
		"an unfit body":   {change: []func(*actions.Request){func(r *actions.Request) { r.Body = []byte(`{"` + private + `":1e999}`) }}, rows: []string{"denied"}, reason: "invalid_body"},
		"an unfit key":    {change: []func(*actions.Request){withKey(" " + private)}, rows: []string{"denied"}, reason: "invalid_key"},
		"dry run":         {change: []func(*actions.Request){dryRun}},
		"store not ready": {before: func(f *fixture) { f.ready = ledger.ErrNotReady }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			if c.before != nil {
				c.before(f)
			}
			known := len(f.rows())
			r := f.request(body, append(c.change, noted)...)
			r.RequestID = "req_2"
			_, _ = f.do(r)
			rows := f.rows()[known:]
			var events []string
			for _, row := range rows {
				events = append(events, string(row.Event))
				require.Equal(t, "acme", row.Tenant)
				require.Equal(t, audit.Actor{Kind: audit.KindKey, KeyID: "key_1"}, row.Actor, "as the principal says")
				require.Equal(t, "req_2", row.RequestID)
				require.Equal(t, "rest", row.Front)
				require.Equal(t, map[string]string{"run": "7"}, row.Meta)
				require.Equal(t, "billing", row.Connection)
				require.NotContains(t, string(row.Encode()), "word of")
				require.Equal(t, row.Event != audit.Denied, row.ActionID != "")
			}
			require.Equal(t, c.rows, events)
			if c.reason != "" {
				require.Equal(t, c.reason, rows[len(rows)-1].Reason)
			}
			require.NotContains(t, f.log.String(), "word of", "nor is it logged")
			require.NotContains(t, f.log.String(), token)
		})
	}
}

func TestNoRowNoAnswer(t *testing.T) {
	for event, c := range map[string]struct {
		before func(f *fixture)
		change []func(*actions.Request)
	}{
		"replayed":    {before: func(f *fixture) { f.succeeds(`{}`) }},
		"denied":      {before: func(f *fixture) { f.accounts.conn.Paused = true }},
		"key_reused":  {before: func(f *fixture) { f.succeeds(`{"n":1}`, withKey("k")) }, change: []func(*actions.Request){withKey("k")}},
		"held_repeat": {before: func(f *fixture) { f.vendor.says(answered(500, "", "")); f.fails(actions.OutcomeUnknown, `{}`) }},
	} {
		t.Run(event, func(t *testing.T) {
			f := newFixture(t)
			c.before(f)
			f.store.fail(event, -1)
			f.fails(actions.StoreUnavailable, `{}`, c.change...)
		})
	}
}

func TestTheRowOfASweepIsTheGatewaysOwn(t *testing.T) {
	f, out, release := lapse(t)
	require.Equal(t, audit.System(), f.rows()[1].Actor)
	require.Equal(t, audit.LeaseLost, f.rows()[1].Event)
	release(201)
	require.NoError(t, receive(t, out).err)
	last := f.rows()[3]
	require.Equal(t, audit.Actor{Kind: audit.KindKey, KeyID: "key_1"}, last.Actor, "a late answer belongs to who asked")
}

// A write that inherits a vendor key is planned again; a connector that cannot
// do so is the operator's to mend, and the refusal is recorded like any other.
func TestAnInheritedVendorKeyThatCannotBePlannedIsDenied(t *testing.T) {
	f := newFixture(t)
	inherit(f)
	f.fake.PlanFunc = func(_ context.Context, op connectors.Op) (connectors.Request, error) {
		if op.VendorKey == f.fake.Planned()[0].VendorKey {
			return connectors.Request{}, connectors.ErrPlan
		}
		return connectors.Request{Method: "POST", URL: "https://vendor.example/things"}, nil
	}
	calls := f.vendor.calls()
	f.fails(actions.NotSent, `{}`)
	require.Equal(t, calls, f.vendor.calls())
	last := f.rows()[len(f.rows())-1]
	require.Equal(t, audit.Denied, last.Event)
	require.Equal(t, "not_sent", last.Reason)
}

func TestAWriteFoundNotDoneIsSentUnderItsOldVendorKey(t *testing.T) {
	f := newFixture(t)
	inherit(f)
	reply := f.succeeds(`{}`)
	require.Equal(t, f.vendor.sent[0].Header.Get("X-Vendor-Key"), f.vendor.sent[1].Header.Get("X-Vendor-Key"))
	require.NotEmpty(t, reply.Record.VendorKey)
}

// inherit makes a write that was sent under a vendor key, held, and found not
// done by an operator.
func inherit(f *fixture) {
	f.Helper()
	action := f.fake.SpecValue.Actions["create_thing"]
	action.Idempotency = &connectors.Idempotency{
		In: "header", Name: "X-Vendor-Key", Format: connectors.KeyHex, MaxLen: 64, Retention: window,
	}
	f.fake.SpecValue.Actions["create_thing"] = action
	f.fake.PlanFunc = func(_ context.Context, op connectors.Op) (connectors.Request, error) {
		return connectors.Request{
			Method: http.MethodPost, URL: "https://vendor.example/things",
			Header: http.Header{"X-Vendor-Key": {op.VendorKey}}, Body: op.Params,
		}, nil
	}
	f.vendor.says(answered(500, "", ""))
	f.fails(actions.OutcomeUnknown, `{}`)
	_, err := f.claims.Resolve(f.Context(), scope, f.only().ID, dedupe.Resolution{
		State: dedupe.NotDone, Note: "looked", By: "key_2", Scribe: sweeping,
	})
	require.NoError(f, err)
	f.vendor.answer = nil
}
