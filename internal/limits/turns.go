package limits

import (
	"container/list"
	"context"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// Turns shares the processor and the disk between tenants: so many requests of one
// tenant are worked on at once, and the others of it wait for their turn. Whatever a
// tenant asks for, another's request finds at most that many of it before itself.
//
// A tenant beside which nobody has asked for a while ([company]) takes nothing from
// anybody, and may have many at once: the disk does more for many writes together
// than for one after the other.
//
// A turn is held while the gateway works, not while it waits for others: it rests
// while a vendor works and when the store takes long ([Shared]), and ends with the
// first byte of the answer. So neither a hanging store nor a slow vendor nor a slow
// client uses up a tenant's turns, and a holder never waits for another holder.
//
// It is safe for concurrent use. A nil Turns lets everybody through.
type Turns struct {
	most int // in company

	mu    sync.Mutex
	lines map[string]*line // by incarnation of the tenant; empty ones are dropped
	// The two tenants that asked last, the last first: enough to know for each
	// tenant when another asked.
	seen [2]sight
}

// sight is when a tenant last asked for a turn.
type sight struct {
	who string
	at  time.Time
}

// line is where the requests of one tenant stand.
type line struct {
	running   int
	returning list.List // of chan struct{}: had a turn before, so they come first
	waiting   list.List // of chan struct{}
}

const (
	// maxWaiting bounds the requests of one tenant that wait; each has its body in
	// memory already.
	maxWaiting = 512
	// maxWait bounds how long one waits for its first turn.
	maxWait = 10 * time.Second
	// company is how long a tenant that has asked is taken to be about to ask again.
	company = 10 * time.Minute
	// mostAlone is how many turns a tenant has at once that is alone. Another's first
	// request may find so many before itself.
	mostAlone = 256
)

// NewTurns returns turns, so many at once for each tenant that is not alone; 0
// means nil.
func NewTurns(most int64) *Turns {
	if most <= 0 {
		return nil
	}
	return &Turns{most: int(most), lines: map[string]*line{}}
}

// Turn is one request's. Its methods are safe for concurrent use; of a nil Turn
// they do nothing.
type Turn struct {
	t   *Turns
	who string

	mu    sync.Mutex
	state turnState
}

type turnState int

const (
	held turnState = iota
	rests
	over
)

// Take waits for a turn. Exceeded says that too many wait already, or that it
// took too long; a request whose caller has gone gets its turn at once, since
// nobody is there to be told and nothing long comes of it.
func (t *Turns) Take(ctx context.Context, p tenants.Principal) (*Turn, *Exceeded) {
	if t == nil || p.Platform || p.TenantID == "" {
		return nil, nil
	}
	u := &Turn{t: t, who: p.TenantID}
	t.mu.Lock()
	t.see(u.who)
	l := t.lineOf(u.who)
	switch {
	case l.running < t.share(u.who):
		l.running++
		t.mu.Unlock()
		return u, nil
	case l.waiting.Len() >= maxWaiting:
		t.mu.Unlock()
		return nil, &Exceeded{Limit: AtOnce, Wait: time.Second}
	}
	called := make(chan struct{})
	place := l.waiting.PushBack(called)
	t.mu.Unlock()

	patience := time.NewTimer(maxWait)
	defer patience.Stop()
	select {
	case <-called:
		return u, nil
	case <-ctx.Done():
	case <-patience.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-called: // just now
		return u, nil
	default:
	}
	l.waiting.Remove(place)
	t.drop(u.who, l)
	if ctx.Err() != nil {
		u.state = over
		return u, nil
	}
	return nil, &Exceeded{Limit: AtOnce, Wait: time.Second}
}

// see notes that a tenant asks. The caller holds mu.
func (t *Turns) see(who string) {
	if t.seen[0].who != who {
		t.seen[1] = t.seen[0]
	}
	t.seen[0] = sight{who, time.Now()}
}

// share is how many turns a tenant may have at once now. The caller holds mu.
func (t *Turns) share(who string) int {
	other := t.seen[0]
	if other.who == who {
		other = t.seen[1]
	}
	if other.who == "" || time.Since(other.at) > company {
		return max(t.most, mostAlone)
	}
	return t.most
}

// lineOf is where a tenant's requests stand. The caller holds mu.
func (t *Turns) lineOf(who string) *line {
	l := t.lines[who]
	if l == nil {
		l = &line{}
		t.lines[who] = l
	}
	return l
}

// free ends or rests a turn: the next in line gets it, if the tenant's share has
// not become smaller meanwhile; if it has become larger, so many of them do.
func (t *Turns) free(who string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[who]
	l.running--
	for share := t.share(who); l.running < share; l.running++ {
		if !l.call(&l.returning) && !l.call(&l.waiting) {
			break
		}
	}
	t.drop(who, l)
}

// call gives a turn to the first of a queue, if there is one.
func (l *line) call(q *list.List) bool {
	first := q.Front()
	if first == nil {
		return false
	}
	turn, _ := q.Remove(first).(chan struct{}) // nothing else is put there
	close(turn)
	return true
}

// drop forgets a line in which nobody stands. The caller holds mu.
func (t *Turns) drop(who string, l *line) {
	if l.running == 0 && l.waiting.Len() == 0 && l.returning.Len() == 0 {
		delete(t.lines, who)
	}
}

// again waits for a turn that was laid to rest. It cannot fail: what was begun is
// brought to its end.
func (t *Turns) again(who string) {
	t.mu.Lock()
	l := t.lineOf(who)
	if l.running < t.share(who) {
		l.running++
		t.mu.Unlock()
		return
	}
	called := make(chan struct{})
	l.returning.PushBack(called)
	t.mu.Unlock()
	<-called
}

// Rest gives the turn to others until resume is called, which waits for it again.
// Only the first call of resume does anything.
func (u *Turn) Rest() (resume func()) {
	if u == nil || !u.pass(held, rests) {
		return func() {}
	}
	u.t.free(u.who)
	return sync.OnceFunc(func() {
		u.t.again(u.who)
		if !u.pass(rests, held) { // it ended meanwhile
			u.t.free(u.who)
		}
	})
}

// RestAfter is Rest for a wait that is usually short: the turn is kept for so
// long.
func (u *Turn) RestAfter(patience time.Duration) (resume func()) {
	if u == nil {
		return func() {}
	}
	var (
		mu     sync.Mutex
		ended  bool
		rested = func() {}
	)
	timer := time.AfterFunc(patience, func() {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			rested = u.Rest()
		}
	})
	return func() {
		timer.Stop()
		mu.Lock()
		ended = true
		mu.Unlock()
		rested()
	}
}

// Leave ends the turn. It may be called more than once.
func (u *Turn) Leave() {
	if u == nil {
		return
	}
	u.mu.Lock()
	was := u.state
	u.state = over
	u.mu.Unlock()
	if was == held {
		u.t.free(u.who)
	}
}

func (u *Turn) pass(from, to turnState) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.state != from {
		return false
	}
	u.state = to
	return true
}

type turnKey struct{}

// WithTurn puts a turn into the context of what is done in it.
func WithTurn(ctx context.Context, u *Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, u)
}

// TurnOf returns the turn of a context, nil if there is none.
func TurnOf(ctx context.Context) *Turn {
	u, _ := ctx.Value(turnKey{}).(*Turn)
	return u
}

// storePatience is how long a call to the store may take before the turn rests.
// Within it the turn is kept, so that a tenant has few writes at once on their
// way to the disk, where every other's wait behind them.
const storePatience = 100 * time.Millisecond

// Shared is a store that is called in turns: one that hangs uses up nobody's.
type Shared struct{ ledger.Store }

// Apply is the store's.
func (s Shared) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	defer TurnOf(ctx).RestAfter(storePatience)()
	return s.Store.Apply(ctx, scope, step) //nolint:wrapcheck // it is the store's
}

// Read is the store's.
func (s Shared) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	defer TurnOf(ctx).RestAfter(storePatience)()
	return s.Store.Read(ctx, scope, fetch...) //nolint:wrapcheck // as above
}

// Entries is the store's.
func (s Shared) Entries(ctx context.Context, scope ledger.Scope, r ledger.EntryRange) ([]ledger.Entry, error) {
	defer TurnOf(ctx).RestAfter(storePatience)()
	return s.Store.Entries(ctx, scope, r) //nolint:wrapcheck // as above
}

// Rows is the store's.
func (s Shared) Rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) ([]ledger.Row, error) {
	defer TurnOf(ctx).RestAfter(storePatience)()
	return s.Store.Rows(ctx, scope, r) //nolint:wrapcheck // as above
}
