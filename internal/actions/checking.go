package actions

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/wire"
)

// Verdicts of a check (CONTRACT 5).
const (
	verdictSucceeded    = "succeeded"
	verdictNotPerformed = "not_performed"
	verdictStillUnknown = "still_unknown"
	verdictConflict     = "conflict"
)

// asker is who wants a check.
type asker struct {
	by     string // id of the API key, "" for the gateway itself
	scribe dedupe.Scribe
	auto   bool // the reconciler: it resends only where the connection says so
}

// checking is one check of a held write, under its lease.
type checking struct {
	s     *Service
	asker asker
	scope ledger.Scope

	mu     sync.Mutex // guards handle: a renewal and an end never overlap
	handle *dedupe.CheckHandle

	h     *held
	conn  connections.Connection
	creds map[string]string

	end      dedupe.CheckEnding
	conflict bool
	resent   bool          // in this check: what a look-up does not find may yet land
	plan     time.Duration // first delay of the next automatic check; 0: none
	why      string        // what kept a step from being taken, for the answer
}

// checked is what a check came to.
type checked struct {
	verdict string
	detail  string
	rec     *dedupe.Record
	answer  []byte
}

// check runs the connector's check of a held write, at most one at a time over
// all replicas. Errors are those of StartCheck, or the store's.
func (s *Service) check(ctx context.Context, scope ledger.Scope, id dedupe.ActionID, by asker) (checked, error) {
	ctx, span := s.span(ctx, "check", trace.SpanKindInternal)
	defer span.End()
	limits.TurnOf(ctx).Leave() // a vendor may take its time
	handle, err := s.claims.StartCheck(ctx, scope, id, by.scribe)
	if err != nil {
		if handle != nil {
			return checked{rec: handle.Record}, err
		}
		return checked{}, err
	}
	c := &checking{s: s, asker: by, scope: scope, handle: handle, end: dedupe.CheckEnding{State: dedupe.Held, By: by.by, Scribe: by.scribe}}

	renewing, stop := context.WithCancel(ctx)
	var renewer sync.WaitGroup
	renewer.Go(func() { c.keepLease(renewing) })
	cut, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(s.base, cancel)
	c.safely(cut)
	release()
	cancel()
	rec, err := c.store(ctx)
	stop()
	renewer.Wait()
	return c.result(ctx, rec, err)
}

// keepLease renews the check's lease every third of it.
func (c *checking) keepLease(ctx context.Context) {
	every := c.s.claims.Lease() / 3
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if errors.Is(c.renew(ctx), dedupe.ErrLeaseLost) {
			return
		}
	}
}

func (c *checking) renew(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.s.claims.RenewCheck(ctx, c.handle)
}

// safely runs the check. A panic in it settles nothing.
func (c *checking) safely(ctx context.Context) {
	var err error
	func() {
		defer caught(&err)
		c.run(ctx)
	}()
	if err != nil {
		c.end.State, c.end.Resend, c.end.Answer, c.end.Outcome = dedupe.Held, false, nil, nil
		c.cannot(ctx, "the check failed inside the gateway, so a person has to look", err)
	}
}

// run takes the steps in order until one of them settles the write.
func (c *checking) run(ctx context.Context) {
	var err error
	if c.h, err = c.s.loadHeld(ctx, c.scope, c.handle.Record); err != nil {
		c.cannot(ctx, "what was kept of this write cannot be read, so a person has to look", err)
		return
	}
	if c.conn, err = c.s.accounts.Get(ctx, c.scope, c.h.rec.Connection); err == nil && c.conn.ID != c.h.rec.ConnectionID {
		err = connections.ErrNotFound
	}
	if err == nil {
		c.creds, err = c.s.credentials(ctx, c.conn, c.h.connector.Spec().Auth)
	}
	if err != nil {
		c.plan = firstCheck(c.h.action.UsableChecks(c.h.kept.Op))
		c.cannot(ctx, "the connection of this write cannot be used, so a person has to look", err)
		return
	}
	if c.rejudge(ctx) {
		return
	}
	steps, err := c.h.connector.Check(ctx, c.h.kept.Op)
	if err != nil {
		c.cannot(ctx, "the check of this write cannot be planned, so a person has to look", err)
		return
	}
	for i, step := range steps {
		if !step.Usable(c.h.kept.Op) {
			c.why = lostCorrelation
			continue
		}
		c.plan = firstCheck(c.h.action.UsableChecks(c.h.kept.Op))
		var settled bool
		if step.Kind == connectors.Resend {
			settled = c.resend(ctx, step.CheckRule)
		} else {
			settled = c.lookUp(ctx, i, step)
		}
		if settled || ctx.Err() != nil {
			return
		}
	}
}

func (c *checking) cannot(ctx context.Context, why string, err error) {
	c.why = why
	c.s.log.WarnContext(ctx, "held write not checked", "action_id", c.handle.Record.ID.String(), "error", err)
}

// rejudge judges an answer again whose judging failed. It costs nothing: the
// answer was kept, and judging is pure.
func (c *checking) rejudge(ctx context.Context) bool {
	sealed, err := c.s.claims.Raw(ctx, c.scope, c.h.rec.ID)
	if errors.Is(err, dedupe.ErrNotFound) {
		return false
	}
	var x wire.Exchange
	if err == nil {
		x, err = c.s.openAnswer(c.scope, c.h.rec.ID, sealed)
	}
	if err != nil {
		c.s.log.WarnContext(ctx, "kept answer not readable", "action_id", c.h.rec.ID.String(), "error", err)
		return false
	}
	f := c.s.judge(ctx, c.h.subject(), x, newMask(c.creds))
	c.probe("judge", f.word(), x, 0)
	if f.settlement.State == dedupe.Held {
		return false
	}
	c.end.State, c.end.Outcome, c.end.Answer = f.settlement.State, &f.settlement.Outcome, f.settlement.Answer
	return true
}

func (h *held) subject() subject {
	return subject{scope: h.scope, id: h.rec.ID, connector: h.connector, action: h.action, op: h.kept.Op}
}

func (c *checking) probe(how, found string, x wire.Exchange, matches int) {
	p := dedupe.Probe{How: how, Found: found, Status: x.Status, Matches: matches}
	if x.Phase == wire.Answered && x.Body.SHA256 != [32]byte{} {
		p.SHA256 = hex.EncodeToString(x.Body.SHA256[:])
	}
	c.end.Probes = append(c.end.Probes, p)
}

// Tries of a check's end that the store would not take. What it found is found
// again by the next check, except the answer to a resend.
const (
	endFirst = 50 * time.Millisecond
	endTries = 8
)

// store ends the check.
func (c *checking) store(ctx context.Context) (*dedupe.Record, error) {
	if !c.conflict && c.plan > 0 {
		c.end.Next = c.s.nextCheck(c.handle.Record, c.plan)
	}
	wait := endFirst
	for try := 1; ; try++ {
		c.mu.Lock()
		rec, err := c.s.claims.EndCheck(ctx, c.handle, c.end)
		c.mu.Unlock()
		if !errors.Is(err, ledger.ErrUnavailable) || try == endTries {
			return rec, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.s.base.Done():
			timer.Stop()
			return rec, err
		}
		wait *= 2
	}
}

// result words what the check came to. Somebody else's settling meanwhile is a
// result like any other.
func (c *checking) result(ctx context.Context, rec *dedupe.Record, err error) (checked, error) {
	switch {
	case errors.Is(err, dedupe.ErrLate):
		c.s.metrics.lateAnswers.Inc()
		c.s.log.ErrorContext(ctx, "a check contradicts how the write was settled; a person has to look", "action_id", rec.ID.String(), "found", c.end.State.String())
	case errors.Is(err, dedupe.ErrNotHeld), errors.Is(err, dedupe.ErrLeaseLost):
	case err != nil:
		return checked{}, fmt.Errorf("end check: %w", err)
	}
	out := checked{rec: rec, answer: c.end.Answer}
	out.verdict, out.detail = c.words(rec)
	if rec.State == dedupe.Held && c.conflict {
		c.s.log.ErrorContext(ctx, "a look-up found more than one record for one write; a person has to look", "action_id", rec.ID.String())
	}
	if c.end.Resend && err == nil && rec.State != dedupe.Held && c.handle.Record.OwnerLost {
		c.s.metrics.recovered.Inc()
		c.s.log.WarnContext(ctx, "write of a lost gateway recovered by a resend", "action_id", rec.ID.String(), "state", rec.State.String())
	}
	return out, nil
}

func (c *checking) words(rec *dedupe.Record) (verdict, detail string) {
	switch rec.State {
	case dedupe.Succeeded:
		return verdictSucceeded, "This write was done; from now on a repeat gets its stored answer."
	case dedupe.Refused:
		return verdictNotPerformed, "The vendor refused this write, so it was not done; the refusal is stored, and retry_refused sends it again."
	case dedupe.NotDone:
		return verdictNotPerformed, "This write was not done; the next do of it runs."
	case dedupe.Held:
		if c.conflict {
			return verdictConflict, "More than one record at the vendor carries what names this write, so it is not settled by itself; a person has to look, undo what is too much, and resolve it."
		}
		if c.why != "" {
			return verdictStillUnknown, "Nothing new is known: " + c.why + "."
		}
		if len(c.end.Probes) == 0 {
			return verdictStillUnknown, "The connector knows no check of this write; a person has to look at the vendor and resolve it."
		}
		return verdictStillUnknown, "What the vendor shows proves nothing yet; the write stays held."
	default:
		return verdictStillUnknown, "This write is not held any more."
	}
}
