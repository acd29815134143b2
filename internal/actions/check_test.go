package actions_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/tenants"
)

// resendable makes a held write whose check is a resend, and returns its id.
func resendable(f *fixture) string {
	f.Helper()
	rule := connectors.CheckRule{Kind: connectors.Resend, Within: window}
	action := f.fake.SpecValue.Actions["create_thing"]
	action.Idempotency = &connectors.Idempotency{
		In: "header", Name: "X-Vendor-Key", Format: connectors.KeyHex, MaxLen: 64, Retention: window, Documented: true,
	}
	action.Checks = []connectors.CheckRule{rule}
	f.fake.SpecValue.Actions["create_thing"] = action
	f.fake.CheckFunc = func(context.Context, connectors.Op) ([]connectors.CheckStep, error) {
		return []connectors.CheckStep{{CheckRule: rule}}, nil
	}
	f.vendor.says(answered(500, "", ""))
	id := f.fails(actions.OutcomeUnknown, `{}`).Record.ID.String()
	f.vendor.answer = nil
	return id
}

func (f *fixture) check(id string) actions.CheckResult {
	f.Helper()
	got, err := f.svc.Check(f.Context(), f.caller("key_2", tenants.ScopeResolve), id, "req_9")
	require.NoError(f, err)
	return got
}

func TestAResendThatWasHeldUpDoesNotLeave(t *testing.T) {
	const most = lease * 2 / 3
	for name, c := range map[string]struct {
		from, to time.Duration
		sends    int
	}{
		"just in time":                   {0, most - 1, 1},
		"two thirds of a lease":          {0, most, 0},
		"the clock has gone backwards":   {time.Hour, time.Hour - 1, 0},
		"the clock fails all along":      {math.MaxInt64, math.MaxInt64, 0},
		"the clock failed at the start":  {math.MaxInt64, time.Hour, 0},
		"the clock fails before sending": {0, math.MaxInt64, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			id := resendable(f)
			before := f.vendor.sends()
			f.boot.set(c.from)
			f.vendor.before = func() { f.boot.set(c.to) }
			got := f.check(id)
			require.Equal(t, before+c.sends, f.vendor.sends())
			if c.sends == 0 {
				require.Equal(t, "still_unknown", got.Verdict)
				require.Equal(t, dedupe.Held, f.only().State)
				return
			}
			require.Equal(t, "succeeded", got.Verdict)
			require.Equal(t, dedupe.Succeeded, f.only().State)
			require.Equal(t, f.vendor.sent[0].Body, f.vendor.sent[1].Body)
		})
	}
}

// A check that panics reports to the breaker all the same: a probe nobody
// reports on would keep the connection resting for good.
func TestACheckThatPanicsReportsToTheBreaker(t *testing.T) {
	lookup := func(f *fixture) {
		f.fake.CheckFunc = func(context.Context, connectors.Op) ([]connectors.CheckStep, error) {
			return []connectors.CheckStep{{
				CheckRule: connectors.CheckRule{Kind: connectors.Lookup},
				Request:   connectors.Request{Method: http.MethodGet, URL: "https://vendor.example/things"},
			}}, nil
		}
	}
	for name, prepare := range map[string]func(f *fixture){"resend": func(*fixture) {}, "look-up": lookup} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(_ *fixture, _ *dedupe.Config, c *actions.Config) { c.BreakerRest = time.Millisecond })
			id := resendable(f)
			prepare(f)
			failing(f, 0, 7)
			f.vendor.answer = nil
			f.vendor.panics = true
			f.eventually("the probe has been let by", func() bool {
				before := f.vendor.calls()
				require.Equal(t, "still_unknown", f.check(id).Verdict)
				return f.vendor.calls() > before
			})
			f.vendor.panics = false
			f.eventually("another probe is let by", func() bool {
				_, err := f.do(f.request(fmt.Sprintf(`{"probe":%d}`, f.vendor.calls())))
				return err == nil
			})
		})
	}
}
