package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// embeddedConfig is for what does not depend on the store.
func embeddedConfig(t testing.TB) Config {
	t.Helper()
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
	return cfg
}

// series are the names and labels of a scrape, with their values.
func series(t testing.TB, scrape string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(scrape) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		require.Positive(t, at, line)
		out[line[:at]] = line[at+1:]
	}
	return out
}

// ours leaves out the runtime's own series, whose number is Go's business.
func ours(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(name, _ string) bool { return !strings.HasPrefix(name, "holdfast_") })
	return out
}

// TestEverySeriesIsThereFromZero: a rate over a counter that appears with its
// first event misses that event.
func TestEverySeriesIsThereFromZero(t *testing.T) {
	app, _ := boot(t, embeddedConfig(t))
	got := series(t, metricsOf(t, app))
	var want []string
	for name, values := range map[string][]string{
		`holdfast_claims_total{verdict="%s"}`:                                    {"acquired", "replayed", "in_flight", "key_reused", "twin", "held", "would_acquire", "store_error"},
		`holdfast_outcomes_total{connector="probe",outcome="%s"}`:                {"succeeded", "refused", "retryable", "unknown", "not_sent"},
		`holdfast_checks_total{by="reconciler",verdict="%s"}`:                    {"succeeded", "not_performed", "still_unknown", "conflict", "error"},
		`holdfast_store_duration_seconds_count{op="%s"}`:                         {"apply", "read", "entries", "rows", "trim", "trim_rows", "ready"},
		`holdfast_store_errors_total{op="%s"}`:                                   {"apply", "read", "entries", "rows", "trim", "trim_rows", "ready"},
		`holdfast_checks_total{by="operator",verdict="%s"}`:                      {"succeeded", "not_performed", "still_unknown", "conflict", "error"},
		`holdfast_writes_limited_total{limit="%s"}`:                              {"writes", "concurrent-calls", "new-identities"},
		`holdfast_problems_total{code="%s"}`:                                     {"outcome_unknown", "in_flight", "rate_limited", "internal"},
		`holdfast_breakers{state="%s"}`:                                          {"open", "half_open"},
		`holdfast_requests_limited_total{limit="%s"}`:                            {"requests", "address"},
		`holdfast_vendor_duration_seconds_count{connector="%s"}`:                 {"probe", "stripe"},
		`holdfast_http_requests_total{method="POST",route="/v1/do",status="%s"}`: {"2xx", "4xx", "5xx"},
		"%s": {
			"holdfast_lease_lost_total", "holdfast_late_answers_total", "holdfast_held_writes", "holdfast_held_oldest_age_seconds",
			"holdfast_do_duration_seconds_count", "holdfast_breaker_opened_total", "holdfast_recovered_total",
			"holdfast_lapsed_total", "holdfast_resolved_total",
			"holdfast_audit_segments_total", "holdfast_audit_sealed_rows_total", "holdfast_audit_archive_failures_total",
			"holdfast_audit_unsealed_rows", "holdfast_audit_seal_lag_seconds", "holdfast_audit_blocked",
		},
	} {
		for _, v := range values {
			want = append(want, fmt.Sprintf(name, v))
		}
	}
	for _, name := range want {
		require.Contains(t, got, name)
	}
	require.Equal(t, "1", got["holdfast_store_ready"])
	build := slices.DeleteFunc(slices.Collect(maps.Keys(got)), func(n string) bool { return !strings.HasPrefix(n, "holdfast_build_info{") })
	require.Len(t, build, 1)
	require.Contains(t, build[0], "goversion=")
}

// TestUnknownNamesMakeNoSeries: what callers send never becomes a label.
func TestUnknownNamesMakeNoSeries(t *testing.T) {
	t.Parallel()
	vendor := vendortest.New(t, vendortest.OK)
	cfg := embeddedConfig(t)
	cfg.Limits.RequestsPerSecond = 0
	app, _ := boot(t, cfg)
	const names, callers = 10_000, 16 // of tenants of their own: each refusal waits for its row to be durable
	agents := make([]*agent, callers)
	for n := range agents {
		agents[n] = newAgent(t, app.URL())
		agents[n].connect("c", "probe@1", vendor.URL())
	}
	before := ours(series(t, metricsOf(t, app)))

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	ask := func(n int) (int, error) { // not agent.send, which holds each answer against openapi.yaml
		body := doBody(fmt.Sprintf("connection-%d", n), "create", `{"n":1}`)
		if n/callers%2 == 0 {
			body = doBody("c", fmt.Sprintf("action-%d", n), `{"n":1}`)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, app.URL()+"/v1/do", strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+agents[n%callers].key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, errors.Join(err, resp.Body.Close())
	}
	var asking sync.WaitGroup
	for caller := range callers {
		asking.Go(func() {
			for n := caller; n < names; n += callers {
				if status, err := ask(n); err != nil || status < 400 || status >= 500 {
					t.Errorf("%d: %d %v", n, status, err)
					return
				}
			}
		})
	}
	asking.Wait()
	agents[0].call("GET", "/v1/actions/act_nobody", nil)
	after := ours(series(t, metricsOf(t, app)))
	require.ElementsMatch(t, slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after)))
	require.Zero(t, vendor.Arrivals())
}

// TestWhatIsHeldIsCounted: the number of held writes and the age of the oldest,
// soon after it happened.
func TestWhatIsHeldIsCounted(t *testing.T) {
	t.Parallel()
	vendor := vendortest.New(t, vendortest.ResetAfterBody)
	app, _ := boot(t, embeddedConfig(t))
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	a.do("c", "create", `{"n":1}`).is(423, "outcome_unknown")
	eventually(t, 20*time.Second, "the held write is counted", func() bool {
		got := series(t, metricsOf(t, app))
		return got["holdfast_held_writes"] == "1" && got["holdfast_held_oldest_age_seconds"] != "0"
	})
}

// TestABreakerIsSeen: a vendor that keeps failing shows as one resting connection.
func TestABreakerIsSeen(t *testing.T) {
	vendor := vendortest.New(t, vendortest.Status(503))
	app, _ := boot(t, embeddedConfig(t))
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	for n := range 9 {
		a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n))
	}
	got := series(t, metricsOf(t, app))
	require.Equal(t, "1", got["holdfast_breaker_opened_total"])
	require.Equal(t, "1", got[`holdfast_breakers{state="open"}`])
	require.Equal(t, "0", got[`holdfast_breakers{state="half_open"}`])
	require.Equal(t, "9", got["holdfast_do_duration_seconds_count"])
	require.Equal(t, "1", got[`holdfast_outcomes_total{connector="probe",outcome="not_sent"}`])
}
