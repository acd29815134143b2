package pebblestore

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

var errClosed = fmt.Errorf("%w: the store is closed", ledger.ErrUnavailable)

// failure is the latch that stops the store for good.
type failure struct {
	log   *slog.Logger
	once  sync.Once
	ch    chan struct{} // closed once failed
	cause error         // set before ch is closed
}

func newFailure(log *slog.Logger) *failure {
	return &failure{log: log, ch: make(chan struct{})}
}

// set fails the store; the first cause stands.
func (f *failure) set(cause error) {
	f.once.Do(func() {
		f.cause = cause
		f.log.Error("the store has failed and takes no more calls: repair the disk and restart", "error", cause)
		close(f.ch)
	})
}

// err returns nil, or the error that every call gets from now on.
func (f *failure) err() error {
	select {
	case <-f.ch:
		return fmt.Errorf("%w: the store has failed and needs a restart: %w", ledger.ErrUnavailable, f.cause)
	default:
		return nil
	}
}

// unavailable wraps the reason why there is no answer.
func unavailable(cause error) error {
	return fmt.Errorf("%w: %w", ledger.ErrUnavailable, cause)
}

// readError maps an error of the engine's reads. A checksum that does not match
// is corruption; anything else is a disk that did not answer.
func readError(verb string, err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%s: %w", verb, ledger.ErrCorrupt)
	}
	return fmt.Errorf("%s: %w", verb, unavailable(err))
}

// gate counts the calls that run in the background, so that Close can wait for
// them and nothing enters the engine after it.
type gate struct {
	mu      sync.Mutex
	running int
	closed  bool
	idle    chan struct{} // closed when closed and nothing runs
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

func (g *gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed
}

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.running++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.settle()
}

// shut lets nobody in any more; the channel is closed when all have left. It is
// called once.
func (g *gate) shut() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.settle()
	return g.idle
}

func (g *gate) settle() {
	if g.closed && g.running == 0 {
		close(g.idle)
	}
}
