package actions

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/strictjson"
)

// write is one `do` on its way: what it is (identify) and what would be sent
// for it (prepare).
type write struct {
	req       Request
	conn      connections.Connection
	recalled  bool // conn, and not read for this write
	connector connectors.Loaded
	spec      connectors.Spec
	action    connectors.ActionSpec
	ident     identity.Result

	id     dedupe.ActionID
	owner  dedupe.Owner
	issued time.Duration // boot clock just before the claim
	scribe dedupe.Scribe

	hashed  [][]byte // what its keyed hashes are over
	ownKey  string   // the vendor key of a write that inherits none
	op      connectors.Op
	planned connectors.Request

	// refusal is why a new write would not be run. It is kept, not answered: a
	// write that exists already is answered first, whatever has changed since.
	refusal *Error

	// place is what the tenant's limits gave the write, and exceeded why they did
	// not.
	place    *limits.Permit
	exceeded *limits.Exceeded
}

// identify finds out which write a request is. An error here leaves nothing to
// look up, so it is the answer, unless it rests on what is only remembered. Fresh
// has the connection read for this write.
func (s *Service) identify(ctx context.Context, req Request, fresh bool) (*write, *Error) {
	if !req.Principal.MayDo(req.Connection, req.Action) {
		return nil, fail(Forbidden, "this key may not do this action on this connection; use a key with a grant for it")
	}
	if req.Body == nil {
		req.Body = []byte("{}")
	}
	w := &write{req: req, scribe: s.scribe(ctx, req)}
	var err error
	if fresh {
		w.conn, err = s.accounts.Get(ctx, req.Principal.Scope, req.Connection)
	} else {
		w.conn, w.recalled, err = s.accounts.Recall(ctx, req.Principal.Scope, req.Connection)
	}
	if err != nil {
		if errors.Is(err, connections.ErrNotFound) {
			return w, fail(UnknownConnection, "there is no connection of that name; list the connections to see which exist")
		}
		return w, storeFailure(err)
	}
	if w.connector, err = s.catalog.Lookup(ctx, w.conn.Connector); err != nil {
		if errors.Is(err, connectors.ErrUnknownConnector) {
			return w, connectorMissing().cause(err)
		}
		return w, storeFailure(err)
	}
	w.connector.Connector = guarded{w.connector.Connector}
	w.spec = w.connector.Spec()
	action, ok := w.spec.Actions[req.Action]
	if !ok {
		return w, fail(UnknownAction, "the connector of this connection has no action of that name; describe the connector to see which it has")
	}
	w.action = action
	w.ident, err = identity.Derive(identity.Input{
		TenantID: req.Principal.TenantID, ConnectionID: w.conn.ID, Action: req.Action,
		Body: req.Body, Key: req.Key, Ignore: action.Ignore,
	})
	if err != nil {
		return w, identityFailure(err)
	}
	return w, nil
}

func connectorMissing() *Error {
	return fail(NotSent, "the connector of this connection is not loaded; nothing was sent, and an operator has to install or mend it").
		next(AskOperator).after(time.Minute)
}

func identityFailure(err error) *Error {
	var bad *strictjson.Error
	var key *identity.KeyError
	switch {
	case errors.As(err, &key):
		return fail(InvalidKey, key.Reason).cause(err)
	case errors.As(err, &bad):
		e := fail(InvalidBody, "the body is not acceptable: "+bad.Reason).cause(err)
		e.Fields = []FieldProblem{{Pointer: "/body" + bad.Pointer, Reason: bad.Reason}}
		return e
	default:
		return fail(Internal, "the identity of this write could not be derived; nothing was sent").cause(err)
	}
}

// prepare plans the request. It sends nothing and keeps what it finds wrong.
func (s *Service) prepare(ctx context.Context, w *write) {
	w.id = dedupe.NewActionID(s.claims.Now())
	w.owner = dedupe.NewOwner()
	if err := s.ready(); err != nil {
		w.refusal = fail(StoreUnavailable, "the store is not safe to claim in right now, so nothing was sent; repeat the same request").
			after(time.Second).cause(err)
		return
	}
	switch {
	case w.req.Principal.Suspended:
		w.refusal = fail(TenantSuspended, "this tenant is suspended; nothing new is sent for it")
	case w.conn.Paused:
		w.refusal = fail(ConnectionPaused, "this connection is paused; nothing new is sent on it")
	case !w.connector.Claimable:
		w.refusal = connectorMissing()
	default:
		w.refusal = s.plan(ctx, w)
	}
}

func (s *Service) plan(ctx context.Context, w *write) *Error {
	if err := w.spec.ValidateInput(w.req.Action, w.req.Body); err != nil {
		return planFailure(err)
	}
	w.hashed = [][]byte{[]byte(w.req.Principal.TenantID), []byte(w.conn.ID), w.id[:]}
	w.op = connectors.Op{
		Action: w.req.Action, Params: w.req.Body,
		Config: w.conn.Config, BaseURL: w.conn.BaseURL,
		Marker:  s.marker(w),
		Started: s.claims.Now(),

		Uncorrelated: w.conn.Uncorrelated,
	}
	if w.op.Uncorrelated && w.action.MarkerFixed {
		return fail(NotSent, "this connection leaves out the gateway's marker, which its connector cannot do for this action; nothing was sent, and an operator has to look").
			next(AskOperator).after(time.Minute)
	}
	if w.action.Idempotency != nil {
		key, err := w.action.Idempotency.VendorKey(s.keyedHash("vendor-key", w))
		if err != nil {
			return planFailure(err)
		}
		w.op.VendorKey, w.ownKey = key, key
	}
	return s.replan(ctx, w)
}

func (s *Service) replan(ctx context.Context, w *write) *Error {
	planned, err := w.connector.Plan(ctx, w.op)
	if err != nil {
		return planFailure(err)
	}
	w.planned = planned
	return nil
}

func planFailure(err error) *Error {
	var input *connectors.InputError
	if !errors.As(err, &input) {
		return fail(NotSent, "the request could not be planned from this connection's settings; nothing was sent, and an operator has to look").
			next(AskOperator).after(time.Minute).cause(err)
	}
	e := fail(InvalidBody, "the body does not fit the action's input schema; nothing was claimed or sent").cause(err)
	for _, p := range input.Problems {
		e.Fields = append(e.Fields, FieldProblem{Pointer: "/body" + p.Pointer, Reason: p.Reason})
	}
	return e
}

func (s *Service) keyedHash(label string, w *write) [32]byte {
	return s.sealer.MAC(label, w.hashed...)
}

// marker is 128 bits of a keyed hash: it names the write at the vendor without
// telling anything about it.
func (s *Service) marker(w *write) string {
	sum := s.keyedHash("marker", w)
	return hex.EncodeToString(sum[:16])
}

// draft is the content of the new action, asked for by the claim.
func (s *Service) draft(ctx context.Context, w *write) func(time.Time, string) (dedupe.Draft, error) {
	return func(_ time.Time, vendorKey string) (dedupe.Draft, error) {
		if vendorKey == "" {
			vendorKey = w.ownKey
		}
		if vendorKey != w.op.VendorKey {
			w.op.VendorKey = vendorKey
			if e := s.replan(ctx, w); e != nil {
				return dedupe.Draft{}, e
			}
		}
		sealed, err := s.sealRequest(w)
		if err != nil {
			return dedupe.Draft{}, err
		}
		window := w.action.Window
		if window == 0 {
			// Never so short that it could end while the call still runs; what a
			// manifest names is held to the same when it is loaded.
			window = max(s.window, 2*w.action.Timeout)
		}
		d := dedupe.Draft{
			ConnectionID: w.conn.ID, Connection: w.conn.Name, Action: w.action.Name,
			Connector: w.spec.Name + "@" + w.spec.Version, ConnectorSum: w.spec.Sum,
			Marker: w.op.Marker, VendorKey: w.op.VendorKey,
			Timeout: w.action.Timeout, Window: window, Request: sealed,
			CheckAfter: firstCheck(w.action.UsableChecks(w.op)),
		}
		if w.action.Idempotency != nil {
			d.VendorKeyLife = w.action.Idempotency.Retention
		}
		return d, nil
	}
}

func (s *Service) sealRequest(w *write) ([]byte, error) {
	k := keptRequest{Op: w.op, Method: w.planned.Method, URL: w.planned.URL, Header: w.planned.Header, Body: w.planned.Body}
	kept, err := k.encode()
	if err != nil {
		return nil, err
	}
	return s.sealer.Seal(kept, requestBinding(w.req.Principal.Scope, w.id)...), nil
}

func (s *Service) openRequest(scope ledger.Scope, id dedupe.ActionID, sealed []byte) (keptRequest, error) {
	var kept keptRequest
	plain, err := s.sealer.Open(sealed, requestBinding(scope, id)...)
	if err != nil {
		return kept, fmt.Errorf("open request: %w", err)
	}
	if err := json.Unmarshal(plain, &kept); err != nil {
		return kept, fmt.Errorf("decode request: %w", err)
	}
	return kept, nil
}
