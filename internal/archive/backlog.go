package archive

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Backlog remembers which scopes have rows that are not sealed: those that this
// process wrote, which it sees go by, and those that a look through all scopes
// found. It is a hint and a measure; what there is to seal is read from the store.
//
// So a replica visits the scopes that were written to, and not every scope there
// is every second.
type Backlog struct {
	cut  Cut
	most int64

	mu     sync.Mutex
	scopes map[ledger.Scope]*pending
	rows   int64
	cause  error // why sealing fails, nil while it does not
}

// Cut says when rows become a segment: when there are so many, or so many bytes
// of them, or when the oldest has waited so long.
type Cut struct {
	Rows  int
	Bytes int
	Age   time.Duration
}

// DefaultCut makes segments that a query reads in milliseconds. A segment costs
// an entry in the store for as long as it is kept, so a tenant with few writes
// gets at most four an hour.
func DefaultCut() Cut { return Cut{Rows: 4096, Bytes: 1 << 20, Age: 15 * time.Minute} }

// pending is what is known of the unsealed rows of one scope.
type pending struct {
	rows    int64
	bytes   int64
	oldest  time.Time
	counted bool          // all unsealed rows are in rows, not only those seen
	retry   time.Time     // not before this, after a failure
	pause   time.Duration // the last one
	jitter  time.Duration
	busy    bool
	since   pendingSince // noted since the visit that is going on began
}

type pendingSince struct {
	rows, bytes int64
	oldest      time.Time
}

// NewBacklog returns an empty backlog. Room is refused once most rows are
// unsealed; 0: never.
func NewBacklog(cut Cut, most int64) *Backlog {
	return &Backlog{cut: cut, most: most, scopes: map[ledger.Scope]*pending{}}
}

// Watch returns the store with its steps watched for rows.
func (b *Backlog) Watch(store ledger.Store) ledger.Store { return &watched{Store: store, backlog: b} }

type watched struct {
	ledger.Store
	backlog *Backlog
}

func (w *watched) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	res, err := w.Store.Apply(ctx, scope, step)
	if len(step.Rows) > 0 && (res.Applied || errors.Is(err, ledger.ErrUnavailable)) {
		bytes := 0
		for _, r := range step.Rows {
			bytes += len(r)
		}
		w.backlog.note(scope, int64(len(step.Rows)), int64(bytes), step.At)
	}
	return res, err
}

func (b *Backlog) note(scope ledger.Scope, rows, bytes int64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.scopes[scope]
	if p == nil {
		p = b.enter(scope)
	}
	if p.rows == 0 || at.Before(p.oldest) {
		p.oldest = at
	}
	if p.busy {
		if p.since.rows == 0 {
			p.since.oldest = at
		}
		p.since.rows += rows
		p.since.bytes += bytes
	}
	p.rows += rows
	p.bytes += bytes
	b.rows += rows
}

// enter begins to remember a scope. Replicas that write to the same scope would
// seal it at the same moment; the jitter mostly lets one be done before the other
// looks.
func (b *Backlog) enter(scope ledger.Scope) *pending {
	p := &pending{}
	if spread := b.cut.Age / 8; spread > 0 {
		p.jitter = rand.N(spread)
	}
	b.scopes[scope] = p
	return p
}

// due lists the scopes to visit now, and takes them. Each must be left.
func (b *Backlog) due(now time.Time) []ledger.Scope {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []ledger.Scope
	for scope, p := range b.scopes {
		full := p.rows >= int64(b.cut.Rows) || p.bytes >= int64(b.cut.Bytes)
		if p.busy || now.Before(p.retry) || !full && now.Before(p.oldest.Add(b.cut.Age+p.jitter)) {
			continue
		}
		p.busy, p.since = true, pendingSince{}
		out = append(out, scope)
	}
	return out
}

// left is what a visit found that is not sealed yet.
type left struct {
	rows, bytes int64
	oldest      time.Time
	counted     bool
}

// leave ends a visit with what it found at its end.
func (b *Backlog) leave(scope ledger.Scope, found left) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.scopes[scope]
	if p == nil || !p.busy {
		return
	}
	b.rows -= p.rows
	// Rows noted during the visit may be among those found, or not; too many is
	// put right by the next visit, too few would not be noticed.
	p.rows, p.bytes = found.rows+p.since.rows, found.bytes+p.since.bytes
	p.oldest, p.counted, p.busy, p.retry, p.pause = found.oldest, found.counted, false, time.Time{}, 0
	if found.rows == 0 {
		p.oldest = p.since.oldest
	}
	if p.rows == 0 {
		delete(b.scopes, scope)
	}
	b.rows += p.rows
}

const (
	firstPause = time.Second
	maxPause   = time.Minute
)

// fail ends a visit that failed; the scope is left alone for a while.
func (b *Backlog) fail(scope ledger.Scope, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.scopes[scope]
	if p == nil {
		return
	}
	p.busy = false
	p.pause = min(max(2*p.pause, firstPause), maxPause)
	p.retry = now.Add(p.pause)
	if p.oldest.IsZero() {
		p.oldest = now
	}
}

// spare ends a visit that did not take place.
func (b *Backlog) spare(scope ledger.Scope) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.scopes[scope]; p != nil {
		p.busy = false
	}
}

// uncounted lists scopes of which only the rows that were seen are known.
func (b *Backlog) uncounted() []ledger.Scope {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []ledger.Scope
	for scope, p := range b.scopes {
		if !p.counted && !p.busy {
			out = append(out, scope)
		}
	}
	return out
}

// count puts in how many unsealed rows a scope has.
func (b *Backlog) count(scope ledger.Scope, rows, bytes int64, oldest time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.scopes[scope]
	if p == nil || p.busy {
		return
	}
	p.counted = true
	b.rows += max(rows, p.rows) - p.rows
	p.rows, p.bytes = max(rows, p.rows), max(bytes, p.bytes)
	if rows > 0 {
		p.oldest = oldest
	}
}

// failing says why sealing fails, or that it does not.
func (b *Backlog) failing(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = cause
}

// Room says whether more rows may be written. The error wraps ledger.ErrNotReady
// and says in plain words why not.
func (b *Backlog) Room() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most == 0 || b.rows < b.most {
		return nil
	}
	why := "they are written faster than they can be archived"
	if b.cause != nil {
		why = "the audit archive fails: " + b.cause.Error()
	}
	return fmt.Errorf("%w: %d audit rows wait to be archived, and %d is the most that may (GATEWAY_AUDIT_MAX_UNSEALED); %s",
		ledger.ErrNotReady, b.rows, b.most, why)
}

// Unsealed returns how many rows are known not to be sealed, and since when the
// oldest of them waits; the zero time if there is none.
func (b *Backlog) Unsealed() (rows int64, oldest time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.scopes {
		if p.rows > 0 && (oldest.IsZero() || p.oldest.Before(oldest)) {
			oldest = p.oldest
		}
	}
	return b.rows, oldest
}

// found notes a scope that has at least this unsealed row.
func (b *Backlog) found(scope ledger.Scope, row ledger.Row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.scopes[scope]
	if p == nil {
		p = b.enter(scope)
	}
	if p.busy {
		return
	}
	if p.rows == 0 {
		p.rows, p.bytes = 1, int64(len(row.Data))
		b.rows++
	}
	p.oldest = row.At
}
