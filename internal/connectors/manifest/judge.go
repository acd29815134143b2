package manifest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"

	"holdfast.dev/gateway/internal/connectors"
)

// judge reads an answer by the action's rules.
func (a *action) judge(ctx context.Context, vars *scope, ans reading) (connectors.Verdict, error) {
	doubt := func(d connectors.Doubt, rule int) connectors.Verdict {
		return connectors.Verdict{Outcome: connectors.Unknown, Doubt: d, Rule: rule}
	}
	if ans.Status < 200 || ans.Status > 599 {
		return doubt(connectors.DoubtStatus, connectors.NoRule), nil
	}
	if ans.garbled() {
		return doubt(connectors.DoubtBody, connectors.NoRule), nil
	}
	for i, r := range a.rules {
		matched, err := r.when.eval(ctx, vars)
		if err != nil {
			return doubt(connectors.DoubtRuleFailed, i), fmt.Errorf("judge answer: %w", err)
		}
		yes, isBool := matched.(types.Bool)
		if !isBool {
			return doubt(connectors.DoubtRuleFailed, i), nil
		}
		if yes {
			return a.decide(ctx, i, vars, ans)
		}
	}
	return doubt(connectors.DoubtNoRule, connectors.NoRule), nil
}

// decide fills in what the matching rule says beside its outcome. All of that
// is best effort; the outcome stands.
func (a *action) decide(ctx context.Context, i int, vars *scope, ans reading) (connectors.Verdict, error) {
	r := a.rules[i]
	v := connectors.Verdict{Outcome: r.is, Rule: i, Code: r.code.text(ctx, vars, maxCode), Message: r.message.text(ctx, vars, maxMessage)}
	switch r.is {
	case connectors.Unknown:
		v.Doubt = connectors.DoubtRule
	case connectors.Retryable:
		v.Reason = r.reason
		if v.Reason == "" {
			v.Reason = defaultReason(ans.Status)
		}
		v.RetryAfter = a.wait(ctx, r, vars, ans.Header)
	case connectors.Refused:
	case connectors.Succeeded:
		if a.result != nil && (!a.usesBody || ans.state == isJSON) {
			v.Result = project(ctx, a.result, vars)
		}
	}
	if ctx.Err() != nil {
		// The parts may be missing because time ran out: judge again instead.
		return connectors.Verdict{Outcome: connectors.Unknown, Doubt: connectors.DoubtRuleFailed, Rule: i}, fmt.Errorf("judge answer: %w", ctx.Err())
	}
	return v, nil
}

func defaultReason(status int) connectors.Reason {
	switch status {
	case http.StatusTooManyRequests:
		return connectors.RateLimit
	case http.StatusUnauthorized, http.StatusForbidden:
		return connectors.Credential
	default:
		return connectors.Unavailable
	}
}

// project renders a projection; nil if that is impossible.
func project(ctx context.Context, t *tree, vars *scope) []byte {
	raw, ok, err := renderer{ctx: ctx, vars: vars, lenient: true}.render(nil, t)
	if err != nil || !ok || len(raw) > maxOutput {
		return nil
	}
	return raw
}

// headerMap is the variable headers: lower-case names, values of a repeated
// header joined as RFC 9110 section 5.3 joins them. What carries a credential
// is left out: no rule needs it, and a projection would show it.
func headerMap(header http.Header) map[string]string {
	m := make(map[string]string, len(header))
	for name, values := range header {
		if !slices.Contains(secretHeaders, name) {
			m[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	return m
}

// Bounds of what is taken over from a vendor's error, in bytes.
const (
	maxCode    = 200
	maxMessage = 1000
)

// text evaluates an optional expression to a short line, empty if that fails.
func (e *expr) text(ctx context.Context, vars *scope, limit int) string {
	if e == nil {
		return ""
	}
	raw, ok, err := e.token(ctx, vars)
	if err != nil || !ok {
		return ""
	}
	text, err := scalarText(raw)
	if err != nil {
		return ""
	}
	return oneLine(text, limit)
}

// oneLine makes a vendor's words fit to be shown: one line, bounded.
func oneLine(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	text = strings.TrimSpace(text)
	for len(text) > limit {
		cut := limit
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut]
	}
	return text
}

// maxWait bounds a vendor's retry-after.
const maxWait = 24 * time.Hour

// wait is the vendor's hint when to come back: what the rule reads, else what
// the manifest's rate_limit names; the standard header where the rule reads none.
func (a *action) wait(ctx context.Context, r rule, vars *scope, header http.Header) time.Duration {
	if r.retryAfter != nil {
		if hint := waitOf(r.retryAfter.text(ctx, vars, maxCode), header); hint > 0 {
			return hint
		}
	}
	names := []string{a.limits.RetryAfter}
	if r.retryAfter == nil {
		names = append(names, "Retry-After")
	}
	for _, name := range names {
		if hint := waitOf(header.Get(name), header); hint > 0 {
			return hint
		}
	}
	if hint := waitOf(header.Get(a.limits.ResetSeconds), header); hint > 0 {
		return hint
	}
	return waitUntil(header.Get(a.limits.ResetEpoch), header)
}

// waitUntil reads a time in seconds since 1970 or, as some have it, in
// milliseconds. It is held against the answer's own Date, as a date is.
func waitUntil(text string, header http.Header) time.Duration {
	epoch, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || epoch <= 0 {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0
	}
	at := time.Unix(epoch, 0)
	if epoch > 1e11 {
		at = time.UnixMilli(epoch)
	}
	return min(max(at.Sub(now), 0), maxWait)
}

// waitOf reads seconds, or a date (RFC 9110 section 10.2.3). A date is held
// against the answer's own Date: judging has no clock, and the vendor's is the
// one it was written by.
func waitOf(text string, header http.Header) time.Duration {
	text = strings.TrimSpace(text)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if !(seconds > 0) { // not a number included
			return 0
		}
		if seconds >= maxWait.Seconds() {
			return maxWait
		}
		return time.Duration(seconds * float64(time.Second))
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxWait)
}
