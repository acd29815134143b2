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
		data, err := answer.encode()
		if err != nil {
			return View{}, fail(Internal, "the result could not be stored; nothing was changed").cause(err)
		}
		res.State, res.Answer = dedupe.Succeeded, data
	}
	rec, err := s.claims.Resolve(context.WithoutCancel(ctx), p.Scope, found.Record.ID, res)
	if err != nil {
		return View{}, resolveFailure(rec, err)
	}
	s.metrics.resolved.Inc()
	s.log.WarnContext(ctx, "held write resolved", "action_id", rec.ID.String(), "state", rec.State.String(), "key_id", p.KeyID, "request_id", requestID)
	return s.view(ctx, p, dedupe.Found{Record: rec, Answer: res.Answer, Replays: found.Replays})
}

func resolveFailure(rec *dedupe.Record, err error) *Error {
	var possible *dedupe.StillPossibleError
	switch {
	case errors.As(err, &possible):
		return fail(StillPossible, "the gateway that owned this write might still send it; resolve it after its deadline").
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

// Check finds out about a held write. Connectors without a check, and look-ups
// that this gateway does not make by itself, leave it unknown.
func (s *Service) Check(ctx context.Context, p tenants.Principal, id, _ string) (CheckResult, error) {
	found, e := s.find(ctx, p, id)
	if e != nil {
		return CheckResult{}, e
	}
	if found.Record.State != dedupe.Held {
		return CheckResult{}, fail(NotHeld, "this write is not held (any more); get the action to see how it stands").about(found.Record)
	}
	view, err := s.view(ctx, p, found)
	if err != nil {
		return CheckResult{}, err
	}
	return CheckResult{Verdict: "still_unknown", Detail: view.Check.Detail, View: view}, nil
}
