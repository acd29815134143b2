package actions

import (
	"context"
	"errors"
	"time"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/strictjson"
	"holdfast.dev/gateway/internal/tenants"
)

// ListFilter selects actions; zero members select all.
type ListFilter struct {
	State              string
	Connection, Action string
	Since, Until       time.Time
}

// Get returns one action of the caller's tenant. Somebody else's and one that
// does not exist are the same NotFound.
func (s *Service) Get(ctx context.Context, p tenants.Principal, id string) (View, error) {
	found, e := s.find(ctx, p, id)
	if e != nil {
		return View{}, e
	}
	return s.view(ctx, p, found)
}

func (s *Service) find(ctx context.Context, p tenants.Principal, id string) (dedupe.Found, *Error) {
	notFound := fail(NotFound, "there is no such action")
	action, err := dedupe.ParseActionID(id)
	if err != nil {
		return dedupe.Found{}, notFound
	}
	found, err := s.claims.Get(ctx, p.Scope, action)
	if errors.Is(err, dedupe.ErrNotFound) {
		return dedupe.Found{}, notFound
	}
	if err != nil {
		return dedupe.Found{}, readFailure(err)
	}
	if only := ownActionsOnly(p); only != "" && found.Record.KeyID != only {
		return dedupe.Found{}, notFound
	}
	return found, nil
}

// ownActionsOnly is the key whose actions the caller is limited to: a key that
// may only write sees what it wrote.
func ownActionsOnly(p tenants.Principal) string {
	if p.Can(tenants.ScopeRead) || p.Can(tenants.ScopeResolve) {
		return ""
	}
	return p.KeyID
}

func readFailure(err error) *Error {
	e := storeFailure(err)
	if e.Code == StoreUnavailable {
		e.Detail = "the store did not answer; nothing was changed, repeat the request"
	}
	return e
}

func (s *Service) view(ctx context.Context, p tenants.Principal, f dedupe.Found) (View, error) {
	v := View{Record: f.Record, Replays: f.Replays}
	if f.Record.State == dedupe.Held {
		v.Check = s.checkOf(ctx, p.Scope, f.Record)
	}
	if f.Record.State == dedupe.Succeeded && f.Answer != nil {
		answer, err := decodeAnswer(f.Answer)
		if err != nil {
			return View{}, fail(AnswerUnreadable, "the stored answer of this write cannot be read; an operator has to look").about(f.Record).cause(err)
		}
		v.Answer = answer
	}
	return v, nil
}

// List returns actions of the caller's tenant, newest first, and the cursor of
// the next page.
func (s *Service) List(ctx context.Context, p tenants.Principal, f ListFilter, cursor string, limit int) ([]View, string, error) {
	filter := dedupe.Filter{Connection: f.Connection, Action: f.Action, Since: f.Since, Until: f.Until, KeyID: ownActionsOnly(p)}
	if f.State != "" {
		state, ok := dedupe.ParseState(f.State)
		if !ok {
			return nil, "", fail(InvalidRequest, "state must be one of in_flight, succeeded, refused, held, not_done, lapsed")
		}
		filter.State = state
	}
	found, next, err := s.claims.List(ctx, p.Scope, filter, cursor, limit)
	if errors.Is(err, dedupe.ErrCursor) {
		return nil, "", fail(InvalidRequest, "cursor is not one that this list returned")
	}
	if err != nil {
		return nil, "", readFailure(err)
	}
	views := make([]View, 0, len(found))
	for _, f := range found {
		if f.Record == nil {
			views = append(views, View{Lost: f.Lost.String(), LostAt: f.LostAt})
			continue
		}
		v, err := s.view(ctx, p, f)
		if err != nil {
			return nil, "", err
		}
		views = append(views, v)
	}
	return views, next, nil
}

// Resolve settles a held write by an operator's word.
func (s *Service) Resolve(ctx context.Context, p tenants.Principal, id string, r Resolution, requestID string) (View, error) {
	found, e := s.find(ctx, p, id)
	if e != nil {
		return View{}, e
	}
	res := dedupe.Resolution{
		State: dedupe.NotDone, Note: r.Note, By: p.KeyID,
		Scribe: s.scribe(ctx, Request{Principal: p, RequestID: requestID, Front: "rest",
			Connection: found.Record.Connection, Action: found.Record.Action}),
	}
	if !r.Succeeded {
		res.Settle = s.settleOf(ctx, found.Record)
	}
	if r.Succeeded {
		result := r.Result
		if result == nil {
			result = []byte("null")
		}
		if err := strictjson.Check(result); err != nil {
			return View{}, fail(InvalidRequest, "result is not acceptable JSON").cause(err)
		}
		answer := Answer{Kind: ResultJSON, Data: result}
		answer.limit(s.maxResult)
		res.State, res.Answer = dedupe.Succeeded, answer.encode()
	}
	rec, err := s.claims.Resolve(context.WithoutCancel(ctx), p.Scope, found.Record.ID, res)
	if err != nil {
		return View{}, resolveFailure(rec, err)
	}
	s.metrics.resolved.Inc()
	s.log.WarnContext(ctx, "held write resolved", "action_id", rec.ID.String(), "state", rec.State.String(), "key_id", p.KeyID, "request_id", requestID)
	view, err := s.view(ctx, p, dedupe.Found{Record: rec, Answer: res.Answer, Replays: found.Replays})
	view.Warning = forgottenKey(rec, s.claims.Now())
	return view, err
}

// settleOf is how long a write may still turn up at its vendor, as the connector
// it was claimed with says: the longest settle of its look-ups.
func (s *Service) settleOf(ctx context.Context, rec *dedupe.Record) (longest time.Duration) {
	connector, err := s.catalog.Exact(ctx, rec.ConnectorSum)
	if err != nil {
		s.log.WarnContext(ctx, "settle not known", "action_id", rec.ID.String(), "error", err)
		return 0
	}
	for _, rule := range connector.Spec().Actions[rec.Action].Checks {
		longest = max(longest, rule.Settle)
	}
	return longest
}

func resolveFailure(rec *dedupe.Record, err error) *Error {
	var possible *dedupe.StillPossibleError
	var running *dedupe.CheckRunningError
	switch {
	case errors.As(err, &running):
		return fail(CheckRunning, "this write is being checked at the vendor right now; nothing was changed. Wait, then get the action to see what the check came to").
			after(clampHint(running.Until.Sub(running.Now))).about(rec)
	case errors.As(err, &possible) && possible.AtVendor:
		return fail(StillPossible, "the vendor may still be doing this write, so that nobody sees it yet; look again after Retry-After and resolve it then. If you see it now, resolve it as succeeded").
			after(clampHint(possible.Until.Sub(possible.Now))).about(rec)
	case errors.As(err, &possible):
		return fail(StillPossible, "the gateway that owned this write might still send it; check or resolve it after its deadline").
			after(clampHint(possible.Until.Sub(possible.Now))).about(rec)
	case errors.Is(err, dedupe.ErrNotHeld):
		return fail(NotHeld, "this write is not held (any more); get the action to see how it stands").about(rec)
	case errors.Is(err, dedupe.ErrNotFound):
		return fail(NotFound, "there is no such action")
	default:
		e := storeFailure(err)
		if e.Code == StoreUnavailable {
			e.Detail = "the store did not confirm the resolution, which may or may not have been taken; get the action to see how it stands"
		}
		return e
	}
}

// Check runs the connector's check of a held write, now; front is rest or mcp.
func (s *Service) Check(ctx context.Context, p tenants.Principal, id, requestID, front string) (CheckResult, error) {
	if !s.begin() {
		return CheckResult{}, fail(Draining, "this gateway is shutting down; nothing was checked, repeat the request and another one answers").after(time.Second)
	}
	defer s.running.Done()
	found, e := s.find(ctx, p, id)
	if e != nil {
		return CheckResult{}, e
	}
	req := Request{
		Principal: p, RequestID: requestID, Front: front, Connection: found.Record.Connection, Action: found.Record.Action,
	}
	place, e := s.admitCheck(ctx, req, found.Record)
	if e != nil {
		return CheckResult{}, e
	}
	defer place.Done()
	// Once begun it is carried to its end: a caller that hangs up must not leave
	// a resend without its answer.
	ctx = context.WithoutCancel(ctx)
	done, err := s.check(ctx, p.Scope, found.Record.ID, asker{by: p.KeyID, scribe: s.scribe(ctx, req)})
	if err != nil {
		s.metrics.checked("operator", "error")
		return CheckResult{}, resolveFailure(done.rec, err)
	}
	s.metrics.checked("operator", done.verdict)
	s.log.InfoContext(ctx, "held write checked", "action_id", id, "verdict", done.verdict, "key_id", p.KeyID, "request_id", requestID)
	view, err := s.Get(ctx, p, id)
	if err != nil {
		return CheckResult{}, err
	}
	return CheckResult{Verdict: done.verdict, Detail: done.detail, View: view}, nil
}

// forgottenKey warns who says that a write was not performed where the vendor
// would not catch a mistake: a new one would be a second one.
func forgottenKey(rec *dedupe.Record, now time.Time) string {
	if rec.State != dedupe.NotDone || rec.VendorKey == "" || now.Before(rec.VendorKeyEnd) {
		return ""
	}
	return "The vendor may have forgotten the key this write was sent under, so it will not recognise the next one: if this write was done after all, the next do does it a second time."
}
