package actions_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/wire"
)

// TestTransportTimesRules is the whole table: how far the request got, what the
// body is worth, and what the connector says. Only a whole answer that a rule
// recognises is anything but doubt; a body that is not whole is judged, without
// it, by rules that do not look at it.
func TestTransportTimesRules(t *testing.T) {
	verdicts := map[string]connectors.Verdict{
		"succeeded":   {Outcome: connectors.Succeeded},
		"refused":     {Outcome: connectors.Refused},
		"rate_limit":  {Outcome: connectors.Retryable, Reason: connectors.RateLimit},
		"credential":  {Outcome: connectors.Retryable, Reason: connectors.Credential},
		"unavailable": {Outcome: connectors.Retryable, Reason: connectors.Unavailable},
		"unknown":     {Outcome: connectors.Unknown, Doubt: connectors.DoubtNoRule},
		"nonsense":    {Outcome: "done, trust me"},
	}
	codes := map[string]actions.Code{
		"succeeded": "", "refused": actions.VendorRefused, "rate_limit": actions.VendorRateLimited,
		"credential": actions.VendorUnavailable, "unavailable": actions.VendorUnavailable,
		"unknown": actions.OutcomeUnknown, "nonsense": actions.OutcomeUnknown,
	}
	whole := answered(200, "application/json", `{"a":1}`)
	for _, x := range []struct {
		name   string
		x      wire.Exchange
		judged bool
		code   actions.Code // if not judged
	}{
		{"complete", whole, true, ""},
		{"too large", in(whole, wire.TooLarge), true, ""},
		{"unreadable", in(whole, wire.Unreadable), true, ""},
		{"cut", in(whole, wire.Cut), false, actions.OutcomeUnknown},
		{"no answer", wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonDeadline}, false, actions.OutcomeUnknown},
		{"not sent", wire.Exchange{Phase: wire.NotSent, Reason: wire.ReasonDNS}, false, actions.NotSent},
		{"no phase", wire.Exchange{}, false, actions.OutcomeUnknown},
	} {
		for name, v := range verdicts {
			t.Run(x.name+"/"+name, func(t *testing.T) {
				f := newFixture(t)
				f.vendor.says(x.x)
				f.fake.JudgeFunc = func(context.Context, connectors.Op, connectors.Answer) (connectors.Verdict, error) { return v, nil }
				code := x.code
				if x.judged {
					code = codes[name]
				}
				reply, err := f.do(f.request(`{}`))
				if code == "" {
					require.NoError(t, err)
				} else {
					f.failed(code, reply, err)
				}
				require.Equal(t, x.judged, len(f.fake.Judged()) == 1)
				if x.judged {
					require.Equal(t, x.name == "complete", f.fake.Judged()[0].Whole)
				}
				require.Equal(t, 1, f.vendor.sends())
				require.Len(t, f.only().Attempts, 1)
			})
		}
	}
}

func TestAnErrorBesideAVerdictIsDoubt(t *testing.T) {
	f := newFixture(t)
	f.fake.JudgeFunc = func(context.Context, connectors.Op, connectors.Answer) (connectors.Verdict, error) {
		return connectors.Verdict{Outcome: connectors.Succeeded}, errBroken
	}
	f.fails(actions.OutcomeUnknown, `{}`)
	require.Equal(t, dedupe.Held, f.only().State)
}

func TestHintsKeepTheirBounds(t *testing.T) {
	for _, vendor := range []time.Duration{0, time.Millisecond, 7 * time.Second, 24 * time.Hour} {
		for _, reason := range []connectors.Reason{connectors.RateLimit, connectors.Credential, connectors.Unavailable, ""} {
			f := newFixture(t)
			f.fake.JudgeFunc = func(context.Context, connectors.Op, connectors.Answer) (connectors.Verdict, error) {
				return connectors.Verdict{Outcome: connectors.Retryable, Reason: reason, RetryAfter: vendor}, nil
			}
			_, err := f.do(f.request(`{}`))
			var e *actions.Error
			require.ErrorAs(t, err, &e)
			require.GreaterOrEqual(t, e.RetryAfter, max(time.Second, min(vendor, 300*time.Second)))
			require.LessOrEqual(t, e.RetryAfter, 300*time.Second)
			require.Equal(t, reason == connectors.Credential, e.Next == actions.AskOperator)
		}
	}
	for _, reason := range []string{wire.ReasonDNS, wire.ReasonEgressDenied, wire.ReasonNotPermitted, wire.ReasonClosed, "breaker_open"} {
		f := newFixture(t)
		f.vendor.says(wire.Exchange{Phase: wire.NotSent, Reason: reason})
		require.NotZero(t, f.fails(actions.NotSent, `{}`).RetryAfter)
	}
}

// The hint to a duplicate grows with the age of the running write and, rounded
// up to seconds as HTTP wants it, never passes its lease.
func TestTheHintToADuplicateEndsWithTheLease(t *testing.T) {
	f := newFixture(t)
	working, release := f.vendor.stalls()
	out := f.start(t.Context(), f.request(`{}`))
	receive(t, working)
	var last time.Duration
	for range 28 {
		f.clock.advance(time.Second + 20*time.Millisecond)
		left := f.only().LeaseEnd.Sub(f.clock.Now())
		got := f.fails(actions.InFlight, `{}`).RetryAfter
		if left >= time.Second {
			require.LessOrEqual(t, (got + time.Second - 1).Truncate(time.Second), left)
		}
		if left > lease/2 {
			require.GreaterOrEqual(t, got, last, "it grows")
		}
		last = got
	}
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, out).err)
}

func TestResults(t *testing.T) {
	digest := strings.Repeat("00", 32)
	for name, c := range map[string]struct {
		x    wire.Exchange
		want actions.Answer
	}{
		"JSON": {answered(200, "application/json; charset=utf-8", ` {"n":1.10,"a":[]} `),
			actions.Answer{Kind: actions.ResultJSON, Data: []byte(` {"n":1.10,"a":[]} `)}},
		"JSON of a +json type": {answered(200, "application/problem+json", `1`), actions.Answer{Kind: actions.ResultJSON, Data: []byte(`1`)}},
		"JSON without a type":  {answered(200, "", `[]`), actions.Answer{Kind: actions.ResultJSON, Data: []byte(`[]`)}},
		"JSON of another type": {answered(200, "text/plain", `[]`), actions.Answer{Kind: actions.ResultBinary, ContentType: "text/plain", Data: []byte(`[]`)}},
		"not JSON":             {answered(200, "application/json", `{`), actions.Answer{Kind: actions.ResultBinary, ContentType: "application/json", Data: []byte(`{`)}},
		"JSON that is not UTF-8": {in(answered(200, "application/json", "{\"a\":\"\xff\"}"), wire.Unreadable),
			actions.Answer{Kind: actions.ResultBinary, ContentType: "application/json", Data: []byte("{\"a\":\"\xff\"}")}},
		"no type, not UTF-8": {answered(200, "", "\"\xff\""), actions.Answer{Kind: actions.ResultBinary, Data: []byte("\"\xff\"")}},
		"empty":              {answered(204, "", ""), actions.Answer{Kind: actions.ResultNone}},
		"too large": {in(answered(200, "application/json", `{"a":1}`), wire.TooLarge),
			actions.Answer{Kind: actions.ResultOmitted, Reason: "too_large", Bytes: 7, SHA256: digest}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.vendor.says(c.x)
			first := f.succeeds(`{}`)
			require.Equal(t, c.want.Kind, first.Answer.Kind)
			require.Equal(t, string(c.want.Data), string(first.Answer.Data))
			require.Equal(t, c.want.ContentType, first.Answer.ContentType)
			require.Equal(t, c.want.Reason, first.Answer.Reason)
			require.Equal(t, c.want.Bytes, first.Answer.Bytes)
			require.Equal(t, c.want.SHA256, first.Answer.SHA256)
			require.Equal(t, first.Answer, f.succeeds(`{}`).Answer)
		})
	}
}

func TestAProjectionThatIsNotJSONIsNotShownAsJSON(t *testing.T) {
	for _, result := range []string{`{`, "\"\xff\"", ``} {
		f := newFixture(t)
		f.fake.JudgeFunc = func(context.Context, connectors.Op, connectors.Answer) (connectors.Verdict, error) {
			return connectors.Verdict{Outcome: connectors.Succeeded, Result: []byte(result)}, nil
		}
		require.Equal(t, actions.ResultOmitted, f.succeeds(`{}`).Answer.Kind, "%q", result)
	}
}

func TestTheLimitOfAResult(t *testing.T) {
	const most = 1000
	for size, kind := range map[int]actions.AnswerKind{
		most - 1: actions.ResultJSON, most: actions.ResultJSON, most + 1: actions.ResultOmitted,
	} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			f := newFixture(t, func(_ *fixture, _ *dedupe.Config, c *actions.Config) { c.MaxResult = most })
			body := `"` + strings.Repeat("x", size-2) + `"`
			f.vendor.says(answered(200, "application/json", body))
			a := f.succeeds(`{}`).Answer
			require.Equal(t, kind, a.Kind)
			if kind == actions.ResultOmitted {
				require.EqualValues(t, size, a.Bytes)
				require.Len(t, a.SHA256, 64)
				require.Empty(t, a.Data)
			}
			require.Equal(t, a, f.succeeds(`{}`).Answer)
		})
	}
}

func TestVendorHeaders(t *testing.T) {
	f := newFixture(t)
	action := f.fake.SpecValue.Actions["create_thing"]
	action.ExposeHeaders = []string{"X-Request-Id", "set-cookie", "Set-Cookie2", "WWW-Authenticate", "Proxy-Authenticate", "Authorization", "Proxy-Authorization", "Authentication-Info", "Proxy-Authentication-Info", "X-Absent"}
	f.fake.SpecValue.Actions["create_thing"] = action
	x := answered(200, "", `{}`)
	for _, name := range action.ExposeHeaders[:9] {
		x.Header.Set(name, "value")
	}
	x.Header.Set("X-Request-Id", "of "+token)
	x.Header.Set("X-Other", "value")
	f.vendor.says(x)
	want := map[string]string{"X-Request-Id": "of [redacted]"}
	require.Equal(t, want, f.succeeds(`{}`).Answer.Headers)
	require.Equal(t, want, f.succeeds(`{}`).Answer.Headers)
}

// A vendor that echoes the credential: nothing of it is answered, stored or
// logged.
func TestACredentialThatIsEchoedIsHidden(t *testing.T) {
	for name, x := range map[string]wire.Exchange{
		"in JSON":  answered(200, "application/json", `{"you":"`+token+`"}`),
		"in text":  answered(200, "text/plain", "you are "+token),
		"escaped":  answered(200, "application/json", `{"you":"\u0074`+token[1:]+`"}`),
		"a number": answered(200, "application/json", `{"n":1}`),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.vendor.says(x)
			a := f.succeeds(`{}`).Answer
			require.NotContains(t, string(a.Data), token[1:])
			f.vendor.says(answered(422, "", ""))
			f.fake.JudgeFunc = func(context.Context, connectors.Op, connectors.Answer) (connectors.Verdict, error) {
				return connectors.Verdict{Outcome: connectors.Refused, Code: token, Message: "bad key " + token}, nil
			}
			e := f.fails(actions.VendorRefused, `{"n":2}`)
			require.NotContains(t, fmt.Sprint(e.Detail, e.Record.Outcome), token)
			require.NotContains(t, f.log.String(), token)
			for _, r := range f.rows() {
				require.False(t, bytes.Contains(r.Encode(), []byte(token)))
			}
		})
	}
}
