package actions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// held is what is known of an unsettled write when it is to be found out about.
type held struct {
	scope     ledger.Scope
	rec       *dedupe.Record
	kept      keptRequest
	connector connectors.Connector
	spec      connectors.Spec
	action    connectors.ActionSpec
}

// loadHeld reads what was kept of a write, and the very connector version it
// was claimed with.
func (s *Service) loadHeld(ctx context.Context, scope ledger.Scope, rec *dedupe.Record) (*held, error) {
	sealed, err := s.claims.Request(ctx, scope, rec.ID)
	if err != nil {
		return nil, fmt.Errorf("read kept request: %w", err)
	}
	h := &held{scope: scope, rec: rec}
	if h.kept, err = s.openRequest(scope, rec.ID, sealed); err != nil {
		return nil, err
	}
	if h.connector, err = s.catalog.Exact(ctx, rec.ConnectorSum); err != nil {
		return nil, fmt.Errorf("find connector version: %w", err)
	}
	h.connector = guarded{h.connector}
	h.spec = h.connector.Spec()
	h.action = h.spec.Actions[rec.Action]
	return h, nil
}

// checkOf describes how a held write can be found out about, from what was kept
// of it. A check that cannot be described is a person's work, never an error:
// the answer that carries it must not fail.
func (s *Service) checkOf(ctx context.Context, scope ledger.Scope, rec *dedupe.Record) *Check {
	if !rec.State.Unsettled() {
		return nil
	}
	h, err := s.loadHeld(ctx, scope, rec)
	if err != nil {
		s.log.WarnContext(ctx, "check not describable", "action_id", rec.ID.String(), "error", err)
		return manualCheck(rec)
	}
	return s.describeCheck(ctx, h)
}

// describeCheck puts the connector's check in words, with this write's own
// values. A look-up is preferred: whoever reads this can do it, while only the
// gateway can resend.
func (s *Service) describeCheck(ctx context.Context, h *held) *Check {
	op := h.shown()
	steps, err := h.connector.Check(ctx, op)
	all := len(steps)
	steps = slices.DeleteFunc(steps, func(step connectors.CheckStep) bool { return !step.Usable(op) })
	if err != nil || len(steps) == 0 {
		c := manualCheck(h.rec)
		if len(steps) < all {
			c.Detail = sentenceOf(lostCorrelation) + " " + c.Detail
		}
		return c
	}
	automatic := s.automatic(ctx, h, steps)
	for _, step := range steps {
		if step.Kind == connectors.Lookup {
			return describeLookup(h, step, automatic)
		}
	}
	return describeResend(h, steps[0], automatic)
}

// automatic says whether the gateway will find out by itself.
func (s *Service) automatic(ctx context.Context, h *held, steps []connectors.CheckStep) bool {
	if h.rec.NextCheck.IsZero() {
		return false
	}
	conn, err := s.accounts.Get(ctx, h.scope, h.rec.Connection)
	if err != nil || conn.ID != h.rec.ConnectionID || conn.Paused {
		return false
	}
	return slices.ContainsFunc(steps, func(c connectors.CheckStep) bool {
		return c.Kind == connectors.Lookup || conn.AutoResend && h.mayResend(c.CheckRule, s.claims.Now())
	})
}

func describeLookup(h *held, step connectors.CheckStep, automatic bool) *Check {
	c := &Check{How: string(connectors.Lookup), Automatic: automatic, Settle: step.Settle, Match: step.Match,
		Method: step.Request.Method, URL: strings.ReplaceAll(step.Request.URL, redactedInURL, redacted)}
	var say strings.Builder
	if automatic {
		say.WriteString("The gateway looks for it by itself and settles it if it finds it; to look yourself, ")
	} else {
		say.WriteString("Look at the vendor: ")
	}
	fmt.Fprintf(&say, "send the given request, not before %s; exactly one record that carries %s means it was done", h.settledAt(step.CheckRule).Format(timeForm), h.names())
	if step.Absent == connectors.NotPerformed {
		say.WriteString(", and none means it was not")
	} else {
		say.WriteString(", and finding none proves nothing")
	}
	say.WriteString(". Then tell the gateway with resolve.")
	c.Detail = say.String()
	return c
}

// lostCorrelation says what a connection without correlation has given up.
const lostCorrelation = "this write was made without the gateway's marker (correlation is off on its connection), so nothing at the vendor names it and no look-up by marker can find it"

func sentenceOf(s string) string { return strings.ToUpper(s[:1]) + s[1:] + "." }

// names is what a write can be known by at the vendor.
func (h *held) names() string {
	if i := h.action.Idempotency; i != nil && i.In != "header" && h.rec.VendorKey != "" {
		if h.kept.Op.Uncorrelated {
			return fmt.Sprintf("the %s %s", i.Name, h.rec.VendorKey)
		}
		return fmt.Sprintf("the %s %s or the marker %s", i.Name, h.rec.VendorKey, h.rec.Marker)
	}
	return "the marker " + h.rec.Marker
}

func describeResend(h *held, step connectors.CheckStep, automatic bool) *Check {
	until := h.resendUntil(step.CheckRule).Format(timeForm)
	c := &Check{How: string(connectors.Resend), Automatic: automatic}
	if automatic {
		c.Detail = fmt.Sprintf("The gateway sends the same bytes under the same vendor key once more by itself, until %s, which has no second effect at this vendor.", until)
	} else {
		c.Detail = fmt.Sprintf("Ask an operator to start a check of this write before %s: the same bytes under the same vendor key are then sent once more, which has no second effect at this vendor.", until)
	}
	return c
}

const timeForm = "2006-01-02T15:04:05.000Z07:00"

func manualCheck(rec *dedupe.Record) *Check {
	return &Check{How: "manual", Detail: fmt.Sprintf(
		"Look in the account at the vendor for the effect of %s at about %s, then tell the gateway what was found with resolve.",
		rec.Action, rec.Created.Format(timeForm))}
}

// redacted stands for a value that the manifest says must not be shown.
const (
	redacted      = "[redacted]"
	redactedInURL = "%5Bredacted%5D"
)

// shown is the write with what the manifest redacts replaced, so that a request
// planned from it can be shown. A value of another form makes the plan fail,
// which shows nothing.
func (h *held) shown() connectors.Op {
	op := h.kept.Op
	for _, pointer := range h.spec.Redact.Params {
		op.Params = redactAt(op.Params, pointer)
	}
	return op
}

// redactAt replaces the value at a JSON Pointer (RFC 6901). JSON that does not
// have one there is left alone.
func redactAt(data []byte, pointer string) []byte {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var root any
	if pointer == "" || d.Decode(&root) != nil {
		return data
	}
	path := strings.Split(pointer[1:], "/")
	at := root
	for i, name := range path {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		object, ok := at.(map[string]any)
		if !ok {
			return data
		}
		value, ok := object[name]
		if !ok {
			return data
		}
		if i == len(path)-1 {
			object[name] = redacted
		}
		at = value
	}
	out, err := json.Marshal(root)
	if err != nil {
		return data
	}
	return out
}

// firstCheck is when, after a claim, the gateway may first look for itself: the
// least settle of its look-ups. A resend needs no settling. 0: never.
func firstCheck(rules []connectors.CheckRule) time.Duration {
	var first time.Duration
	for _, r := range rules {
		wait := max(r.Settle, time.Millisecond)
		if first == 0 || wait < first {
			first = wait
		}
	}
	return first
}

// settledAt is when the absence of a record begins to mean something: the
// connector's settle after the last moment at which something may have been
// sent, and not before nothing can be sent any more.
func (h *held) settledAt(rule connectors.CheckRule) time.Time {
	return latest(h.rec.LastSent().Add(rule.Settle), h.rec.Deadline)
}

// resendUntil is when the vendor may have forgotten the key. A key that was
// inherited from an earlier write began its life there.
func (h *held) resendUntil(rule connectors.CheckRule) time.Time {
	until := h.rec.Created.Add(rule.Within)
	if i := h.action.Idempotency; i != nil && !h.rec.VendorKeyEnd.IsZero() {
		if end := h.rec.VendorKeyEnd.Add(rule.Within - i.Retention); end.Before(until) {
			until = end
		}
	}
	return until
}

// mayResend says whether the vendor is documented to still know the key.
func (h *held) mayResend(rule connectors.CheckRule, now time.Time) bool {
	i := h.action.Idempotency
	return rule.Kind == connectors.Resend && i != nil && i.Documented && h.rec.VendorKey != "" &&
		h.rec.VendorKey == h.kept.Op.VendorKey && now.Before(h.resendUntil(rule))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
