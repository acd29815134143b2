package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
)

// TestEveryCode is the contract's table, written out once more by hand.
func TestEveryCode(t *testing.T) {
	rows := []struct {
		code   actions.Code
		status int
		next   actions.Next
		retry  bool
	}{
		{"invalid_json", 400, "fix_request", false},
		{"invalid_request", 400, "fix_request", false},
		{"invalid_body", 400, "fix_request", false},
		{"invalid_key", 400, "fix_request", false},
		{"unauthenticated", 401, "ask_operator", false},
		{"forbidden", 403, "ask_operator", false},
		{"connection_paused", 403, "ask_operator", false},
		{"tenant_suspended", 403, "ask_operator", false},
		{"unknown_connection", 404, "fix_request", false},
		{"unknown_action", 404, "fix_request", false},
		{"not_found", 404, "fix_request", false},
		{"method_not_allowed", 405, "fix_request", false},
		{"in_flight", 409, "wait_and_repeat", true},
		{"not_held", 409, "fix_request", false},
		{"still_possible", 409, "fix_request", true},
		{"check_running", 409, "fix_request", true},
		{"connection_fixed", 409, "fix_request", false},
		{"unsettled_writes", 409, "fix_request", false},
		{"already_exists", 409, "fix_request", false},
		{"connector_in_use", 409, "fix_request", false},
		{"too_large", 413, "fix_request", false},
		{"unsupported_media_type", 415, "fix_request", false},
		{"key_reused", 422, "use_new_key", false},
		{"outcome_unknown", 423, "check_vendor", false},
		{"twin_unsettled", 423, "check_vendor", false},
		{"answer_not_saved", 423, "get_action", false},
		{"vendor_refused", 424, "fix_request", false},
		{"rate_limited", 429, "wait_and_repeat", true},
		{"vendor_rate_limited", 429, "wait_and_repeat", true},
		{"not_sent", 503, "wait_and_repeat", true},
		{"vendor_unavailable", 503, "wait_and_repeat", true},
		{"store_unavailable", 503, "wait_and_repeat", true},
		{"draining", 503, "wait_and_repeat", true},
		{"stored_answer_unreadable", 500, "ask_operator", false},
		{"internal", 500, "ask_operator", false},
	}
	var codes []actions.Code
	titles := map[string]bool{}
	for _, row := range rows {
		codes = append(codes, row.code)
		t.Run(string(row.code), func(t *testing.T) {
			g := newGateway(t)
			got := g.answerWith(&actions.Error{Code: row.code, Cause: errors.New("secret cause")})
			require.Equal(t, row.status, got.status)
			require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
			body := got.json()
			require.Equal(t, "/problems/"+string(row.code), body["type"])
			require.Equal(t, string(row.code), body["code"])
			require.Equal(t, strconv.Itoa(row.status), string(body["status"].(json.Number)))
			require.Equal(t, string(row.next), body["next"])
			require.NotEmpty(t, body["detail"])
			require.Equal(t, got.header.Get("Request-Id"), body["request_id"])
			require.NotContains(t, string(got.body), "secret cause")
			titles[body["title"].(string)] = true
			if row.retry {
				require.Equal(t, "1", got.header.Get("Retry-After"))
			} else {
				require.Empty(t, got.header.Get("Retry-After"))
			}
			require.Equal(t, row.code == "unauthenticated", got.header.Get("WWW-Authenticate") != "")
		})
	}
	require.ElementsMatch(t, codes, api.Codes(), "the table and the contract name the same codes")
	require.Len(t, titles, len(rows), "each code has a title of its own")
}

// A code that nobody has put into the table is a mistake of ours: 500, and not
// a second send.
func TestUnknownCodeFailsClosed(t *testing.T) {
	g := newGateway(t)
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{}, &actions.Error{Code: "brand_new"}
	}
	got := g.send("POST", "/v1/do", smallest)
	require.Equal(t, http.StatusInternalServerError, got.status)
	require.Equal(t, "internal", got.json()["code"])
}

func TestRetryAfter(t *testing.T) {
	for _, row := range []struct {
		code actions.Code
		hint time.Duration
		want string
	}{
		{actions.InFlight, 0, "1"},
		{actions.InFlight, -time.Second, "1"},
		{actions.InFlight, time.Millisecond, "1"},
		{actions.InFlight, 2*time.Second + 1, "3"},
		{actions.InFlight, 300 * time.Second, "300"},
		{actions.InFlight, 9 * time.Hour, "300"},
		{actions.OutcomeUnknown, 0, ""},
		{actions.OutcomeUnknown, 4 * time.Second, "4"},
	} {
		g := newGateway(t)
		g.do = func(context.Context, actions.Request) (actions.Reply, error) {
			return actions.Reply{}, &actions.Error{Code: row.code, RetryAfter: row.hint}
		}
		require.Equal(t, row.want, g.send("POST", "/v1/do", smallest).header.Get("Retry-After"), "%s after %s", row.code, row.hint)
	}
}

// answerWith makes a call that openapi.yaml allows to be answered so.
func (g *gateway) answerWith(e *actions.Error) answer {
	g.do = func(context.Context, actions.Request) (actions.Reply, error) { return actions.Reply{}, e }
	g.resolve = func(string, actions.Resolution) (actions.View, error) { return actions.View{}, e }
	switch api.StatusOf(e.Code) {
	case http.StatusConflict:
		return g.send("POST", "/v1/actions/act_x/resolve", `{"outcome":"not_performed"}`)
	default:
		return g.send("POST", "/v1/do", smallest)
	}
}
