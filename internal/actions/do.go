package actions

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
)

// guardTries bounds how often a claim is made again because the connection was
// changed under it.
const guardTries = 4

// Do runs a write, or answers for one that was run before. The error is an
// *Error. A caller that goes away changes nothing for a write that was claimed.
func (s *Service) Do(ctx context.Context, req Request) (Reply, error) {
	if !s.begin() {
		return Reply{}, fail(Draining, "this gateway is shutting down; nothing was sent, repeat the request and another one answers").after(time.Second)
	}
	defer s.running.Done()
	ctx, span := s.span(ctx, "do", trace.SpanKindServer)
	defer span.End()

	started := time.Now()
	var c course
	reply, e := s.do(ctx, req, &c)
	c.took = time.Since(started)
	s.metrics.do.Observe(c.took.Seconds())
	s.logDo(ctx, req, reply, e, c)
	spanDo(span, req, reply, e)
	if e != nil {
		return Reply{}, e
	}
	return reply, nil
}

// course is how a `do` went, for its line in the log.
type course struct {
	verdict     string        // of the last claim; "" if none was made
	claim, took time.Duration // in the store, and in all
}

func (s *Service) do(ctx context.Context, req Request, c *course) (Reply, *Error) {
	until := time.Time{}
	if req.Wait > 0 {
		until = time.Now().Add(req.Wait)
	}
	for {
		w, claimed, e := s.claim(ctx, req, c)
		if e != nil {
			return Reply{}, e
		}
		if claimed.Verdict == dedupe.Busy && time.Now().Before(until) && !req.DryRun {
			if s.awaitSettled(ctx, req.Principal.Scope, claimed.Record.ID, until) {
				continue // its answer is there: claim once more to be given it
			}
		}
		return s.answerClaim(ctx, w, claimed)
	}
}

// claim identifies, prepares and claims. It is made again if the connection
// changes between the reading of it and the claim: nothing is claimed on a
// connection, with a key or for a tenant that is not as it was read.
func (s *Service) claim(ctx context.Context, req Request, c *course) (*write, dedupe.Claimed, *Error) {
	fresh := false
	for range guardTries {
		w, e := s.identify(ctx, req, fresh)
		if e != nil && w != nil && w.recalled {
			s.accounts.Forget(req.Principal.Scope, req.Connection)
			w, e = s.identify(ctx, req, true) // what is remembered is no ground to say no
		}
		if e != nil {
			return nil, dedupe.Claimed{}, s.deny(ctx, req, e)
		}
		at := time.Now()
		claimed, known, err := s.replay(ctx, w)
		if err != nil {
			c.verdict = verdictStoreError
			return nil, claimed, s.claimFailure(w, err)
		}
		if known {
			c.verdict, c.claim = string(claimed.Verdict), c.claim+time.Since(at)
			s.metrics.claims.WithLabelValues(c.verdict).Inc()
			return w, claimed, nil
		}
		s.prepare(ctx, w)
		s.admit(w)
		at = time.Now()
		claimed, err = s.claimOnce(ctx, w)
		c.claim += time.Since(at)
		w.charge(claimed, err)
		if errors.Is(err, dedupe.ErrGuard) {
			s.accounts.Forget(req.Principal.Scope, req.Connection)
			fresh = true // another call may have it remembered again already, as it was
			continue
		}
		var refused *Error
		if errors.As(err, &refused) { // a draft that could not be made
			if w.recalled {
				s.accounts.Forget(req.Principal.Scope, req.Connection)
				fresh = true
				continue
			}
			return nil, claimed, s.deny(ctx, req, refused)
		}
		if err != nil {
			c.verdict = verdictStoreError
			return nil, claimed, s.claimFailure(w, err)
		}
		c.verdict = string(claimed.Verdict)
		s.metrics.claims.WithLabelValues(string(claimed.Verdict)).Inc()
		if claimed.Verdict == dedupe.WouldAcquire && !req.DryRun {
			if w.exceeded != nil {
				return nil, claimed, s.limited(ctx, w.req, w.exceeded, w.refusal)
			}
			return nil, claimed, s.deny(ctx, req, w.refusal)
		}
		return w, claimed, nil
	}
	// It is not the connection then, which was read afresh: the key or
	// the tenant has changed since it was remembered. The repeat is told how.
	s.keys.Forget(req.Principal.KeyID)
	return nil, dedupe.Claimed{}, fail(StoreUnavailable, "the key, tenant or connection was changed just now; nothing was sent, repeat the same request").after(time.Second)
}

// replay answers for a write that is remembered as settled, before another is
// prepared in its place.
func (s *Service) replay(ctx context.Context, w *write) (claimed dedupe.Claimed, known bool, err error) {
	if w.req.DryRun {
		return dedupe.Claimed{}, false, nil
	}
	cl := dedupe.Claim{
		Scope:    w.req.Principal.Scope,
		Identity: w.ident.Identity, Fingerprint: w.ident.Fingerprint,
		RetryRefused: w.req.RetryRefused,
		Scribe:       w.scribe,
	}
	_, cl.Basis = w.conditions()
	at := time.Now()
	if claimed, known, err = s.claims.Replay(context.WithoutCancel(ctx), cl); known || err != nil {
		_, span := s.span(ctx, "claim", trace.SpanKindInternal, trace.WithTimestamp(at)) // there will be no other
		spanClaim(span, claimed, err)
		span.End()
	}
	return claimed, known, err
}

func (s *Service) claimOnce(ctx context.Context, w *write) (claimed dedupe.Claimed, err error) {
	ctx, span := s.span(ctx, "claim", trace.SpanKindInternal)
	defer span.End()
	defer func() { spanClaim(span, claimed, err) }()
	// Once the claim is on its way it is carried to its end: a caller that hangs
	// up in the middle must not leave the gateway in doubt about its own claim.
	ctx = context.WithoutCancel(ctx)
	if err := s.clear(ctx, w); err != nil {
		return dedupe.Claimed{}, err
	}
	guard, basis := w.conditions()
	w.issued = s.boot()
	return s.claims.Claim(ctx, dedupe.Claim{
		Scope:    w.req.Principal.Scope,
		Identity: w.ident.Identity, Fingerprint: w.ident.Fingerprint, Source: w.ident.Source,
		KeyID: w.req.Principal.KeyID, RequestID: w.req.RequestID,
		ID: w.id, Owner: w.owner,
		Draft: s.draft(ctx, w),
		Guard: guard, Basis: basis,
		MayAcquire: w.refusal == nil, DryRun: w.req.DryRun,
		RetryRefused: w.req.RetryRefused, AllowDuplicate: w.req.AllowDuplicate,
		Tally:  limits.Tally,
		Scribe: w.scribe,
	})
}

// conditions are what a claim is made under: the key, the tenant and the connection
// are as they were read. A connection that is only remembered must be so whatever
// the verdict.
func (w *write) conditions() (guard, basis []ledger.Expect) {
	guard = w.req.Principal.Guards()
	if w.recalled {
		return guard, []ledger.Expect{w.conn.Expect()}
	}
	return append(guard, w.conn.Expect()), nil
}

// verdictStoreError stands beside dedupe's verdicts for a claim that came to none.
const verdictStoreError = "store_error"

// claimFailure words a claim that could not be made. Nothing was sent.
func (s *Service) claimFailure(w *write, err error) *Error {
	s.metrics.claims.WithLabelValues(verdictStoreError).Inc()
	var uncertain *dedupe.UncertainError
	if errors.As(err, &uncertain) {
		s.abandon(w, uncertain.Abandon)
	}
	return storeFailure(err)
}

func storeFailure(err error) *Error {
	if errors.Is(err, dedupe.ErrUnreadable) || errors.Is(err, ledger.ErrCorrupt) {
		return fail(AnswerUnreadable, "what is stored about this write cannot be read; it was not sent again, and an operator has to look").cause(err)
	}
	return fail(StoreUnavailable, "the store did not confirm the claim, so nothing was sent; repeat the same request").after(time.Second).cause(err)
}

// deny records that an authenticated caller was refused before a claim. If the
// row cannot be written the caller is told about the store instead: no row, no
// answer.
func (s *Service) deny(ctx context.Context, req Request, e *Error) *Error {
	if e.Code == StoreUnavailable || e.Code == AnswerUnreadable {
		return e
	}
	row := s.baseRow(ctx, req)
	row.Event, row.At, row.Reason = audit.Denied, s.claims.Now(), string(e.Code)
	if err := s.journal.Append(context.WithoutCancel(ctx), req.Principal.Scope, row); err != nil {
		return storeFailure(err)
	}
	return e
}

// answerClaim turns a verdict into what the caller is told.
func (s *Service) answerClaim(ctx context.Context, w *write, c dedupe.Claimed) (Reply, *Error) {
	if w.req.DryRun {
		return s.answerDryRun(w, c)
	}
	switch c.Verdict {
	case dedupe.Acquired:
		return s.run(ctx, w, c)
	case dedupe.Replayed:
		return s.settled(outcome{Record: c.Record, Answer: c.Answer, Replayed: true, Replays: c.Replays})
	case dedupe.Busy:
		return Reply{}, fail(InFlight, "this very write is running right now; wait, then repeat the same request to get its answer").
			after(busyHint(c)).about(c.Record)
	case dedupe.OnHold:
		return s.settled(outcome{Record: c.Record, Replayed: true, Check: s.checkOf(ctx, w.req.Principal.Scope, c.Record)})
	case dedupe.KeyReused:
		return Reply{}, fail(KeyReused, "this idempotency_key was used for a different request; nothing was sent. Use a new key for a new write, or send the first request unchanged").
			about(c.Record)
	case dedupe.Twin:
		e := fail(TwinUnsettled, "an identical write under another idempotency_key has not been settled; nothing was sent. Find out about that one first: repeating under new keys would do it twice").
			about(c.Record)
		e.Check = s.checkOf(ctx, w.req.Principal.Scope, c.Record)
		return Reply{}, e
	default:
		return Reply{}, fail(Internal, "the claim came to no verdict; nothing was sent")
	}
}

var wouldNames = map[dedupe.Verdict]string{
	dedupe.WouldAcquire: "execute", dedupe.Replayed: "replay", dedupe.Busy: "in_flight",
	dedupe.OnHold: "held", dedupe.KeyReused: "key_reused", dedupe.Twin: "held",
}

func (s *Service) answerDryRun(w *write, c dedupe.Claimed) (Reply, *Error) {
	if c.Verdict == dedupe.WouldAcquire && w.refusal != nil {
		return Reply{}, w.refusal
	}
	would := wouldNames[c.Verdict]
	if c.Verdict == dedupe.Replayed && c.Record.State == dedupe.Refused {
		would = "refused"
	}
	return Reply{Would: would, Record: c.Record}, nil
}

// Bounds of Retry-After in the contract.
const (
	minHint = time.Second
	maxHint = 300 * time.Second
)

func clampHint(d time.Duration) time.Duration { return min(max(d, minHint), maxHint) }

// busyHint grows with the age of the running write and never passes its lease.
// It is whole seconds, because a front that has to round would round up.
func busyHint(c dedupe.Claimed) time.Duration {
	left := c.Record.LeaseEnd.Sub(c.Now)
	return clampHint(min(c.Now.Sub(c.Record.Created), left).Truncate(time.Second))
}

// pollEvery is how often a waiting duplicate looks for the answer. It reads
// only, and leaves no rows.
const pollEvery = 100 * time.Millisecond

// mostWaiting is how many duplicates of one tenant wait at the same time. Each
// asks the store several times a second, beside the tenant's turns; those beyond
// are told at once that the write is running, as without Prefer.
const mostWaiting = 32

// waiting counts the duplicates that wait, by tenant.
type waiting struct {
	mu sync.Mutex
	of map[ledger.Scope]int
}

// enter takes a place, if there is one; leave gives it back.
func (w *waiting) enter(scope ledger.Scope) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[scope] >= mostWaiting {
		return false
	}
	if w.of == nil {
		w.of = map[ledger.Scope]int{}
	}
	w.of[scope]++
	return true
}

func (w *waiting) leave(scope ledger.Scope) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[scope]--; w.of[scope] == 0 {
		delete(w.of, scope)
	}
}

// awaitSettled waits until an action is no longer in flight. False if the time
// is up, the caller is gone, the store does not answer, or too many of the tenant
// wait already.
func (s *Service) awaitSettled(ctx context.Context, scope ledger.Scope, id dedupe.ActionID, until time.Time) bool {
	if !s.waiting.enter(scope) {
		return false
	}
	defer s.waiting.leave(scope)
	limits.TurnOf(ctx).Leave()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for time.Now().Before(until) {
		select {
		case <-ctx.Done():
			return false
		case <-s.base.Done():
			return false
		case <-tick.C:
		}
		found, err := s.claims.Get(ctx, scope, id)
		if err != nil && !errors.Is(err, dedupe.ErrNotFound) {
			return false
		}
		if err != nil || found.Record.State != dedupe.InFlight || !found.Now.Before(found.Record.LeaseEnd) {
			return true
		}
	}
	return false
}
