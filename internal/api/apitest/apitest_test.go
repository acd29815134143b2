package apitest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/api/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	requestID = "req_01M8M7436348F6NWE7WAX1MWFN"
	problem   = `{"type":"/problems/not_found","title":"Not found","status":404,"code":"not_found","detail":"d","next":"fix_request","request_id":"` + requestID + `"}`
)

func TestCheck(t *testing.T) {
	for _, row := range []struct {
		name, method, path, media string
		status                    int
		body, fault               string
		change                    func(http.Header)
	}{
		{name: "as described", method: "GET", path: "/v1/actions/x", status: 404, body: problem},
		{name: "list", method: "GET", path: "/v1/actions", status: 200, media: "application/json", body: `{"data":[]}`},
		{name: "no body", method: "DELETE", path: "/v1/connections/x", status: 204},
		{name: "body where none is", method: "DELETE", path: "/v1/connections/x", status: 204, body: "{}", fault: "has no body"},
		{name: "status", method: "GET", path: "/v1/actions/x", status: 418, body: problem, fault: "418"},
		{name: "media type", method: "GET", path: "/v1/actions/x", status: 404, media: "application/json", body: problem, fault: "media type"},
		{name: "not JSON", method: "GET", path: "/v1/actions/x", status: 404, body: "{", fault: "not JSON"},
		{name: "two values", method: "GET", path: "/v1/actions/x", status: 404, body: problem + problem, fault: "not JSON"},
		{name: "member missing", method: "GET", path: "/v1/actions/x", status: 404, body: strings.Replace(problem, `"detail":"d",`, "", 1), fault: "detail"},
		{name: "member too many", method: "GET", path: "/v1/actions/x", status: 404, body: strings.Replace(problem, `{`, `{"extra":1,`, 1), fault: "extra"},
		{name: "nested member too many", method: "GET", path: "/v1/actions/x", status: 404, body: strings.Replace(problem, `{`, `{"outcome":{"kind":"unknown","why":1},`, 1), fault: "why"},
		{name: "code of no table", method: "GET", path: "/v1/actions/x", status: 404, body: strings.Replace(problem, `"code":"not_found"`, `"code":"lost"`, 1), fault: "code"},
		{name: "header missing", method: "POST", path: "/v1/do", status: 404, body: problem, fault: "Idempotent-Replayed"},
		{name: "header bad", method: "POST", path: "/v1/do", status: 404, body: problem, fault: "Idempotent-Replayed",
			change: func(h http.Header) { h.Set("Idempotent-Replayed", "maybe") }},
		{name: "request id", method: "GET", path: "/v1/actions/x", status: 404, body: problem, fault: "Request-Id", change: func(h http.Header) { h.Del("Request-Id") }},
		{name: "cacheable", method: "GET", path: "/v1/actions/x", status: 404, body: problem, fault: "Cache-Control", change: func(h http.Header) { h.Del("Cache-Control") }},
		{name: "no operation", method: "GET", path: "/nowhere", status: 404, body: problem},
		{name: "no operation, no problem", method: "GET", path: "/nowhere", status: 404, media: "text/plain", body: "404", fault: "no such operation"},
		{name: "no operation, success", method: "GET", path: "/nowhere", status: 200, body: problem, fault: "no such operation"},
		{name: "no method, other code", method: "PATCH", path: "/v1/do", status: 405, body: problem, fault: "no such operation"},
	} {
		t.Run(row.name, func(t *testing.T) {
			header := http.Header{"Request-Id": {requestID}, "Cache-Control": {"no-store"}}
			if row.status != 204 {
				header.Set("Content-Type", row.media)
			}
			if row.media == "" && row.status != 204 {
				header.Set("Content-Type", "application/problem+json")
			}
			if row.change != nil {
				row.change(header)
			}
			req := httptest.NewRequest(row.method, row.path, nil)
			err := apitest.Check(req, &http.Response{StatusCode: row.status, Header: header}, []byte(row.body))
			if row.fault == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.fault)
			}
		})
	}
}
