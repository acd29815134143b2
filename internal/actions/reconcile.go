package actions

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// Reconcile says how held writes are looked after in the background.
type Reconcile struct {
	Every time.Duration // how often due checks are looked for
	First time.Duration // least delay between two checks of one write
	Most  time.Duration // greatest delay
}

// DefaultReconcile is kind to vendors: a held write is looked for once its
// connector's settle has passed, then ever more rarely.
func DefaultReconcile() Reconcile {
	return Reconcile{Every: 2 * time.Second, First: 5 * time.Second, Most: time.Hour}
}

const (
	// dueBatch bounds the due checks one scope is asked for at once.
	dueBatch = 256
	// atOnce bounds the checks this process runs at the same time, each on
	// another connection: one vendor account never sees two look-ups at once from
	// one gateway.
	atOnce = 16
	// pausedFor, in units of Reconcile.First, is how long the checks of a
	// connection are put off that is paused or may only be resent by a person.
	pausedFor = 12
)

// Directory lists all tenants and knows what each of them may use.
type Directory interface {
	Tenants
	GetTenant(ctx context.Context, id string) (tenants.Tenant, error)
}

// Reconciler finds out about held writes in the background. Every gateway runs
// one; the check's lease keeps two from checking the same write.
type Reconciler struct {
	s       *Service
	tenants Directory
	slots   chan struct{}

	mu   sync.Mutex
	busy map[string]bool // connections whose writes are being checked
}

// NewReconciler returns a reconciler of a service's held writes.
func NewReconciler(s *Service, all Directory) *Reconciler {
	return &Reconciler{s: s, tenants: all, slots: make(chan struct{}, atOnce), busy: make(map[string]bool)}
}

// Run checks what is due until ctx ends, and waits for its checks.
func (r *Reconciler) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.NewTicker(r.s.reconcile.Every)
	defer tick.Stop()
	for {
		err := r.tenants.Refs(ctx, func(ref tenants.Ref) error {
			r.pass(ctx, ref, &running)
			return ctx.Err()
		})
		if err != nil && ctx.Err() == nil && !errors.Is(err, ledger.ErrNotReady) {
			r.s.log.WarnContext(ctx, "tenants not listed for the reconciler", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pass starts the due checks of one tenant, those of one connection one after
// the other.
func (r *Reconciler) pass(ctx context.Context, ref tenants.Ref, running *sync.WaitGroup) {
	due, err := r.s.claims.DueChecks(ctx, ref.Scope, dueBatch)
	if err != nil {
		if ctx.Err() == nil {
			r.s.log.WarnContext(ctx, "due checks not listed", "error", err)
		}
		return
	}
	if len(due) == 0 {
		return
	}
	who, err := r.caller(ctx, ref)
	if err != nil {
		if ctx.Err() == nil {
			r.s.log.WarnContext(ctx, "limits of a tenant not read, so its held writes are not checked", "error", err)
		}
		return
	}
	// In another order on each replica, so that they seldom reach for the same.
	rand.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	byConnection := map[string][]*dedupe.Record{}
	for _, rec := range due {
		byConnection[rec.ConnectionID] = append(byConnection[rec.ConnectionID], rec)
	}
	for id, recs := range byConnection {
		if !r.take(id) {
			continue
		}
		running.Go(func() {
			defer r.release(id)
			for _, rec := range recs {
				if !r.next(ctx, ref, who, rec) {
					return
				}
			}
		})
	}
}

// caller is whose places among the running calls the checks of a tenant take. One
// that is being deleted has the gateway's limits.
func (r *Reconciler) caller(ctx context.Context, ref tenants.Ref) (tenants.Principal, error) {
	t, err := r.tenants.GetTenant(ctx, ref.Tenant)
	if err != nil && !errors.Is(err, tenants.ErrNotFound) {
		return tenants.Principal{}, err
	}
	who := tenants.Principal{Tenant: ref.Tenant, TenantID: ref.TenantID, Scope: ref.Scope}
	if t.TenantID == ref.TenantID {
		who.Limits = t.Limits
	}
	return who, nil
}

// next takes on one held write, unless the gateway stops or the tenant has no
// place among its calls to vendors: then nothing is written about it, and as it
// stays due the next pass comes back to it.
func (r *Reconciler) next(ctx context.Context, ref tenants.Ref, who tenants.Principal, rec *dedupe.Record) bool {
	if ctx.Err() != nil || !r.s.begin() {
		return false
	}
	defer r.s.running.Done()
	place, over := r.s.limits.Call(who)
	if over != nil {
		return false
	}
	defer place.Done()
	r.one(ctx, ref, rec)
	return true
}

func (r *Reconciler) take(connectionID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[connectionID] {
		return false
	}
	select {
	case r.slots <- struct{}{}:
		r.busy[connectionID] = true
		return true
	default:
		return false // the next pass may have room
	}
}

func (r *Reconciler) release(connectionID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, connectionID)
	<-r.slots
}

// one checks one held write, or puts its check off.
func (r *Reconciler) one(ctx context.Context, ref tenants.Ref, rec *dedupe.Record) {
	// A stopping gateway takes nothing on, but what it has begun it ends: the
	// service's own end cuts the call to the vendor.
	ctx = context.WithoutCancel(ctx)
	if wait := r.putOff(ctx, ref.Scope, rec); wait > 0 {
		if err := r.s.claims.Postpone(ctx, ref.Scope, rec.ID, r.s.claims.Now().Add(jitter(wait))); err != nil {
			r.s.log.WarnContext(ctx, "check not put off", "action_id", rec.ID.String(), "error", err)
		}
		return
	}
	done, err := r.s.check(ctx, ref.Scope, rec.ID, asker{scribe: systemScribe(ref.Tenant, "reconciler"), auto: true})
	var running *dedupe.CheckRunningError
	var possible *dedupe.StillPossibleError
	switch {
	case errors.As(err, &running), errors.As(err, &possible), errors.Is(err, dedupe.ErrNotHeld), errors.Is(err, dedupe.ErrNotFound):
		return // another replica was faster, or its owner was
	case err != nil:
		r.s.metrics.checked("reconciler", "error")
		r.s.log.WarnContext(ctx, "held write not checked", "action_id", rec.ID.String(), "error", err)
	default:
		r.s.metrics.checked("reconciler", done.verdict)
		r.s.log.InfoContext(ctx, "held write checked", "action_id", rec.ID.String(), "verdict", done.verdict)
	}
}

// putOff says how long a check has to wait; 0: not at all. For a connector that
// the operator named, and on a paused connection, the gateway does nothing by
// itself, not even look.
func (r *Reconciler) putOff(ctx context.Context, scope ledger.Scope, rec *dedupe.Record) time.Duration {
	paused := pausedFor * r.s.reconcile.First
	if name, _, _ := strings.Cut(rec.Connector, "@"); slices.Contains(r.s.unchecked, name) {
		return paused
	}
	conn, err := r.s.accounts.Get(ctx, scope, rec.Connection)
	switch {
	case errors.Is(err, connections.ErrNotFound):
		return paused
	case err != nil || conn.ID != rec.ConnectionID || conn.Paused:
		return paused
	case r.s.breakers.isOpen(conn.ID):
		return r.s.breakers.rest
	case conn.AutoResend:
		return 0
	}
	connector, err := r.s.catalog.Exact(ctx, rec.ConnectorSum)
	if err != nil {
		return paused
	}
	for _, rule := range connector.Spec().Actions[rec.Action].Checks {
		if rule.Kind == connectors.Lookup && !(rule.ByMarker && conn.Uncorrelated) {
			return 0
		}
	}
	return paused
}

// nextCheck plans the check after the one that is about to end: later each
// time, never all at once, zero past the end of the hold.
func (s *Service) nextCheck(rec *dedupe.Record, first time.Duration) time.Time {
	wait := max(first, s.reconcile.First)
	for range rec.Checks {
		if wait *= 2; wait >= s.reconcile.Most {
			break
		}
	}
	next := s.claims.Now().Add(jitter(min(wait, s.reconcile.Most)))
	if !next.Before(rec.HoldUntil) {
		return time.Time{}
	}
	return next
}

// jitter spreads a delay over its upper half and a quarter more.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(rand.Int64N(int64(d)/2+1))
}
