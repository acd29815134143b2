package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// Scopes lists the scopes of all tenants.
type Scopes interface {
	Scopes(ctx context.Context, each func(ledger.Scope) error) error
}

// Derivation derives something else from rows (usage), in the very step that
// seals them, so that each row counts once. Rows follow the one at the cursor
// after.
type Derivation interface {
	Fetch(after string, rows []ledger.Row) []ledger.Fetch
	Fold(step *ledger.Step, seen ledger.Snapshot, after string, rows []ledger.Row) error
}

// Config is what a Sealer is made of. All of it is required unless it says
// otherwise.
type Config struct {
	Store   ledger.Store // not the watched one: a sealer's steps carry no rows
	Storage Storage
	Signer  Signer
	Backlog *Backlog
	Scopes  Scopes

	// Retention is how long the rows of a scope are kept; ok is false if its tenant
	// is gone, and then what it was before counts.
	Retention func(ctx context.Context, scope ledger.Scope) (keep time.Duration, ok bool, err error)
	// Hot is how long rows stay in the store after they were sealed.
	Hot time.Duration

	Derivation Derivation // may be nil
	// Terms calls f with each term to find a row by; may be nil. A row that cannot be
	// read is found by its time alone.
	Terms func(row audit.Row, f func(term []byte))

	Metrics prometheus.Registerer
	Logger  *slog.Logger
}

// DefaultRetention is how long rows are kept of a tenant that has no setting.
const DefaultRetention = 400 * 24 * time.Hour

// Sealer seals the rows of all scopes. Any number may work over one store.
type Sealer struct {
	Config
	codec   *codec
	metrics *metrics
	// known is the archive's id once that was recognised and the signing key
	// announced.
	known   atomic.Pointer[marker]
	failing atomic.Bool
}

// NewSealer checks that nothing is missing.
func NewSealer(c Config) (*Sealer, error) {
	if c.Store == nil || c.Storage == nil || c.Signer == nil || c.Backlog == nil || c.Scopes == nil || c.Retention == nil || c.Metrics == nil || c.Logger == nil {
		return nil, errors.New("archive: something a sealer needs is missing")
	}
	packer, err := newCodec()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(c.Metrics, c.Backlog, c.Store.Now)
	if err != nil {
		return nil, err
	}
	return &Sealer{Config: c, codec: packer, metrics: m}, nil
}

const (
	// lookEvery is how often it is looked whether a scope is due.
	lookEvery = time.Second
	// workers seal at once: storage may take a hundred milliseconds for an object,
	// and each has one segment in memory.
	workers = 4
	// scanEvery is how often all scopes are gone through, for rows that a process
	// wrote which is no more. scanPace spreads that out.
	scanEvery = 10 * time.Minute
	scanPace  = 2 * time.Millisecond
	// maintainEvery is how often old rows and segments are let go.
	maintainEvery = time.Hour
)

// Run seals until ctx ends. What it does not get done is done by the next one.
func (s *Sealer) Run(ctx context.Context) {
	var jobs sync.WaitGroup
	defer jobs.Wait()
	scan := func(ctx context.Context) error { return s.Scan(ctx, scanPace) }
	jobs.Go(func() { s.every(ctx, scanEvery, "scan", scan) })
	jobs.Go(func() { s.every(ctx, maintainEvery, "maintain", s.maintainAlone) })
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	pause := newPause()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := s.Store.Now(); pause.over(now) {
			pause.next(s.Round(ctx), s.Store.Now())
		}
	}
}

func (s *Sealer) every(ctx context.Context, d time.Duration, what string, f func(context.Context) error) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "audit job failed; it is tried again", "job", what, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pause keeps an archive that fails from being asked all the time.
type pause struct {
	until time.Time
	last  time.Duration
}

func newPause() *pause { return &pause{} }

func (p *pause) over(now time.Time) bool { return !now.Before(p.until) }

func (p *pause) next(err error, now time.Time) {
	if err == nil {
		p.last = 0
		return
	}
	p.last = min(max(2*p.last, time.Second), 30*time.Second)
	p.until = now.Add(p.last)
}

// Round seals every scope that is due. It stops at the first sign that the
// archive fails, and returns that; other failures concern one scope and are kept
// to it.
func (s *Sealer) Round(ctx context.Context) error {
	due := make(chan ledger.Scope)
	var failed atomic.Pointer[error]
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for scope := range due {
				if failed.Load() != nil || ctx.Err() != nil {
					s.Backlog.spare(scope)
					continue
				}
				if err := s.visit(ctx, scope); isArchive(err) {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	for _, scope := range s.Backlog.due(s.Store.Now()) {
		due <- scope
	}
	close(due)
	work.Wait()
	if err := failed.Load(); err != nil {
		s.fail(ctx, *err)
		return *err
	}
	return nil
}

// archiveError is a failure of the storage, which concerns every scope.
type archiveError struct{ error }

func (e archiveError) Unwrap() error { return e.error }

func isArchive(err error) bool { return errors.As(err, &archiveError{}) }

func (s *Sealer) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.metrics.failures.Inc()
	if !s.failing.Swap(true) {
		s.Logger.ErrorContext(ctx, "the audit archive fails; rows stay in the store until it is back", "error", err)
	}
	s.Backlog.failing(err)
	for _, scope := range s.Backlog.uncounted() {
		if err := s.count(ctx, scope); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "unsealed rows not counted", "error", err)
		}
	}
}

// succeeded is told of each segment that was sealed.
func (s *Sealer) succeeded(ctx context.Context, rows int) {
	s.metrics.segments.Inc()
	s.metrics.rows.Add(float64(rows))
	if s.failing.Swap(false) {
		s.Logger.InfoContext(ctx, "the audit archive takes rows again")
		s.Backlog.failing(nil)
	}
}

// visit seals what is due in a scope that was taken from the backlog, and leaves
// it.
func (s *Sealer) visit(ctx context.Context, scope ledger.Scope) error {
	for {
		done, err := s.Seal(ctx, scope, false)
		if err != nil {
			s.Backlog.fail(scope, s.Store.Now())
			if ctx.Err() == nil && !isArchive(err) {
				s.Logger.WarnContext(ctx, "audit rows not sealed", "error", err)
			}
			return err
		}
		if done.Rows == 0 && !done.again {
			s.Backlog.leave(scope, done.left)
			return nil
		}
	}
}

// count finds out how many rows of a scope are unsealed, in pages that it does
// not keep. It goes no further than what is allowed for all scopes.
func (s *Sealer) count(ctx context.Context, scope ledger.Scope) error {
	h, _, err := readHead(ctx, s.Store, scope)
	if err != nil {
		return err
	}
	var rows, bytes int64
	var oldest time.Time
	after := h.Cursor
	for rows <= s.Backlog.most {
		page, err := s.Store.Rows(ctx, scope, ledger.RowRange{After: after, Limit: pageRows})
		if err != nil {
			return fmt.Errorf("count unsealed rows: %w", err)
		}
		for _, r := range page {
			if rows == 0 {
				oldest = r.At
			}
			rows++
			bytes += int64(len(r.Data))
			after = r.Cursor
		}
		if len(page) < pageRows {
			break
		}
	}
	s.Backlog.count(scope, rows, bytes, oldest)
	return nil
}

// Scan goes through all scopes once and notes those that have unsealed rows.
// Between two it waits for pace.
func (s *Sealer) Scan(ctx context.Context, pace time.Duration) error {
	tick := time.NewTicker(max(pace, 1))
	defer tick.Stop()
	look := func(scope ledger.Scope) error {
		if err := s.look(ctx, scope); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "scope not looked at for unsealed rows", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			return nil
		}
	}
	if err := look(ledger.Platform); err != nil {
		return err
	}
	if err := s.Scopes.Scopes(ctx, look); err != nil {
		return err
	}
	// Those of tenants that are gone, too.
	return s.archived(ctx, look)
}

func (s *Sealer) look(ctx context.Context, scope ledger.Scope) error {
	h, _, err := readHead(ctx, s.Store, scope)
	if err != nil {
		return err
	}
	rows, err := s.Store.Rows(ctx, scope, ledger.RowRange{After: h.Cursor, Limit: 1})
	if err != nil {
		return fmt.Errorf("look for unsealed rows: %w", err)
	}
	if len(rows) > 0 {
		s.Backlog.found(scope, rows[0])
	}
	return nil
}
