package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// lines are those of a log with one message.
func (l *logs) lines(t *testing.T, msg string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(l.String()) {
		m := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if m["msg"] == msg {
			out = append(out, m)
		}
	}
	return out
}

// TestOneLinePerDo: each do leaves one line, with its ids, verdict, outcome and
// times; what an operator has to know of is a warning.
func TestOneLinePerDo(t *testing.T) {
	t.Parallel()
	vendor := vendortest.New(t, vendortest.OK)
	app, log := boot(t, embeddedConfig(t))
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	key := `"idempotency_key":"k-1"`
	done := a.do("c", "create", `{"n":1}`, key).is(200, "succeeded")
	a.do("c", "create", `{"n":1}`, key).is(200, "succeeded")
	a.do("c", "create", `{"n":2}`, key).is(422, "key_reused")
	a.do("c", "nothing", `{}`).is(404, "unknown_action")
	a.do("c", "create", `{"n":"no number"}`).is(400, "invalid_body")
	vendor.Use(vendortest.ResetAfterBody)
	held := a.do("c", "create", `{"n":3}`).is(423, "outcome_unknown")
	a.do("c", "create", `{"n":3}`, `"idempotency_key":"k-2"`).is(423, "twin_unsettled")
	a.must(200, "POST", "/v1/actions/"+held.text("action_id")+"/resolve", `{"outcome":"not_performed","note":"looked"}`)

	got := log.lines(t, "do")
	for n, want := range []struct{ level, verdict, outcome, id string }{
		{"INFO", "acquired", "succeeded", done.text("action_id")},
		{"INFO", "replayed", "succeeded", done.text("action_id")},
		{"WARN", "key_reused", "key_reused", done.text("action_id")},
		{"INFO", "", "unknown_action", ""},
		{"INFO", "would_acquire", "invalid_body", ""},
		{"WARN", "acquired", "outcome_unknown", held.text("action_id")},
		{"WARN", "twin", "twin_unsettled", held.text("action_id")},
	} {
		require.Less(t, n, len(got))
		line := got[n]
		require.Equal(t, want.level, line["level"], line)
		require.Equal(t, want.outcome, line["outcome"], line)
		require.NotEmpty(t, line["request_id"])
		require.NotEmpty(t, line["tenant"])
		require.NotEmpty(t, line["key_id"])
		require.Positive(t, line["took"])
		if want.id != "" {
			require.Equal(t, want.id, line["action_id"], line)
		}
		if want.verdict != "" {
			require.Equal(t, want.verdict, line["verdict"], line)
			require.Positive(t, line["claim"])
		} else {
			require.NotContains(t, line, "verdict")
		}
		if want.verdict == "acquired" {
			require.Positive(t, line["vendor"], line)
		} else {
			require.NotContains(t, line, "vendor")
		}
	}
	require.Len(t, got, 7)
	for _, msg := range []string{"write held", "held write resolved"} {
		lines := log.lines(t, msg)
		require.Len(t, lines, 1, msg)
		require.Equal(t, "WARN", lines[0]["level"])
		require.Equal(t, held.text("action_id"), lines[0]["action_id"])
	}
}

// TestAHeldWriteIsLoggedThoughItsCallerHasGone: so is its do, once it has ended.
func TestAHeldWriteIsLoggedThoughItsCallerHasGone(t *testing.T) {
	t.Parallel()
	vendor := vendortest.New(t, vendortest.OK)
	app, log := boot(t, embeddedConfig(t))
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	gone := make(chan struct{})
	vendor.Use(func(c *vendortest.Call) { <-gone; vendortest.ResetAfterBody(c) })
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := a.send(ctx, "POST", "/v1/do", doBody("c", "create", `{"n":1}`), nil)
		left <- err
	}()
	vendor.AwaitArrivals(1)
	leave()
	require.Error(t, <-left)
	close(gone)
	eventually(t, 5*time.Second, "its do has ended", func() bool { return len(log.lines(t, "do")) == 1 })
	require.Equal(t, "outcome_unknown", log.lines(t, "do")[0]["outcome"])
	eventually(t, 5*time.Second, "the line is there", func() bool { return len(log.lines(t, "write held")) == 1 })
	require.NotContains(t, log.String(), sentinel)
}
