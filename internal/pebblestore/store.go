// Package pebblestore is the embedded driver of [ledger.Store]: one folder on
// one disk, owned by one process, on the Pebble storage engine.
//
// The package owns how a step becomes bytes, the order in which steps of a
// scope happen, and when a step may be called durable. What the bytes mean is
// left to the packages above.
//
// # How a step is made
//
// The steps of one scope are made one after another, in the turn of the scope's
// stripe (see stripe), and those that wait for it at the same time as one group (see
// group): each is decided on what all before it have left, and goes into one engine
// batch with them, which is appended to the write-ahead log. Then the stripe is given
// up, and only after that does the group wait for its fsync. So the next group is
// made while the disk is busy, and groups of all stripes that wait at the same time
// share one fsync (group commit).
//
// A step may therefore be decided on a change that is not on disk yet. It
// cannot be answered before that change is: the log is written and synced in
// order, so a later batch is durable only if every earlier one is. An answer
// that writes nothing (a read, a refused step, the repeat of a nonce) waits for
// the batch of its group, and if that has none, for the newest of its stripe.
// Nothing that a crash could take back is ever told.
//
// # How it fails
//
// A call that cannot be answered before its context ends returns
// [ledger.ErrUnavailable]. If its turn had come it is carried to its end in the
// background, if not it is not made.
//
// When the log cannot be written or synced, or the engine reports that it
// cannot go on, what is on disk is unknown. The store then fails for good: each
// running and later call returns [ledger.ErrUnavailable], nothing more is
// written, Ready names the cause, and Close leaves the folder locked as it is.
// The remedy is to repair the disk and start the process again, which reads
// the folder from its log. A full disk that only delays the engine's background
// work makes the store not ready, and passes when there is room again.
package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"holdfast.dev/gateway/internal/bootclock"
	"holdfast.dev/gateway/internal/ledger"
)

// Options are the driver's settings; the zero value is ready for use.
type Options struct {
	// Clock is the source of the store's time; nil: time.Now.
	Clock func() time.Time
	// Boot is a clock that nobody sets and that goes on while the machine sleeps,
	// and Run names the run of the machine that it counts from; nil and "": the
	// machine's own if Clock is nil, else none, and jumps are not noticed.
	Boot func() time.Duration
	Run  string
	// AcceptClock believes Clock wherever it has jumped to since the folder was
	// last open. Without it a jump forward of more than five minutes makes the
	// store not ready.
	AcceptClock bool
	// AcceptLoss opens a folder that is less than was acknowledged, as far as the
	// engine can read it.
	AcceptLoss bool
	// Logger receives what the engine reports; nil: nothing is logged.
	Logger *slog.Logger
	// FS is the file system; nil: the disk. Only tests set it.
	FS vfs.FS

	keepFormat bool // of a folder that is only looked at
}

// ErrInUse means that another process has the folder open.
var ErrInUse = errors.New("in use by another gateway process")

// Store is an open folder. It is safe for concurrent use.
type Store struct {
	db      *pebble.DB
	log     *slog.Logger
	clock   *clock
	mark    highWater
	stripes [stripeCount]stripe
	memory  *memory // of what the stripes guard
	seed    maphash.Seed
	uptime  func() time.Duration // the age of this Store, on a clock nobody sets

	calls   *gate    // the calls running in the background
	workers *workers // which they run on
	failure *failure // why the store stopped for good, if it did
	trouble *trouble // what ails the engine's background work just now

	compactions *compactions // of the engine

	health      io.Closer // watches the disk; nil in memory
	stopExpirer func()

	freshLogs    atomic.Bool // log files are made anew, not written over
	stopScrubber func()

	lock      io.Closer // of the folder
	notes     *notes    // how far the files are known to reach
	stopNotes func()

	closeOnce sync.Once
	closeErr  error
}

var _ ledger.Store = (*Store)(nil)

// Open opens the store in a folder, making it if it does not exist, and brings one
// of an earlier format to the present one, which an earlier release refuses. The folder
// is made for the owner alone (mode 0700), and so is every file in it (0600).
// It fails at once with [ErrInUse] if another process has the folder open, with
// [ledger.ErrFormat] if a newer release has written to it, and with [ErrDamaged] if what
// was acknowledged is not all there (see reach.go for what can be known of that).
func Open(dir string, opts Options) (*Store, error) {
	expire, scrub, note := time.NewTicker(expireEvery), time.NewTicker(scrubEvery), time.NewTicker(noteEvery)
	s, err := open(dir, opts, expire.C)
	if err != nil {
		expire.Stop()
		scrub.Stop()
		note.Stop()
		return nil, err
	}
	stopExpirer, stopScrubber := s.stopExpirer, s.startScrubber(scrub.C)
	s.stopExpirer = func() { expire.Stop(); stopExpirer() }
	s.stopScrubber = func() { scrub.Stop(); stopScrubber() }
	stopNotes := s.startNotes(note.C)
	s.stopNotes = func() { note.Stop(); stopNotes() }
	return s, nil
}

// open is Open with the expirer driven, and the engine tuned, by the caller.
func open(dir string, opts Options, ticks <-chan time.Time, tune ...func(*pebble.Options)) (*Store, error) {
	if opts.Clock == nil {
		opts.Clock = time.Now
		if opts.Boot == nil {
			opts.Boot, opts.Run = bootclock.New().Now, bootclock.ID()
		}
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	start := time.Now()
	s := &Store{
		log:     opts.Logger,
		memory:  newMemory(memoryMost),
		seed:    maphash.MakeSeed(),
		uptime:  func() time.Duration { return time.Since(start) },
		calls:   newGate(),
		workers: newWorkers(),
		failure: newFailure(opts.Logger),
	}
	s.compactions = newCompactions()
	s.trouble = &trouble{log: opts.Logger, failure: s.failure}
	for i := range s.stripes {
		s.stripes[i].init(s.leads(&s.stripes[i]))
	}
	if err := s.guard(func() error { return s.openEngine(dir, opts, tune) }); err != nil {
		return nil, fmt.Errorf("open store folder %q: %w", dir, err)
	}
	var mark int64
	if err := s.guard(func() (err error) { mark, err = s.prepare(opts.keepFormat); return err }); err != nil {
		return nil, fmt.Errorf("open store folder %q: %w", dir, errors.Join(err, s.closeEngine()))
	}
	var stood time.Time
	if !opts.AcceptClock {
		if err := s.guard(func() (err error) { stood, err = s.stood(opts.Run, opts.Boot); return err }); err != nil {
			return nil, fmt.Errorf("open store folder %q: %w", dir, errors.Join(err, s.closeEngine()))
		}
	}
	s.mark.committed.Store(mark)
	s.clock = newClock(opts.Clock, opts.Boot, time.UnixMilli(mark), stood)
	if opts.Boot != nil {
		s.mark.pace = func(now int64) []byte { return pace{boot: opts.Boot(), shown: now, run: opts.Run}.encode() }
	}
	s.stopExpirer, s.stopScrubber, s.stopNotes = s.startExpirer(ticks), func() {}, func() {}
	return s, nil
}

// Check says whether [Open] would take a folder and the store then be ready. It
// leaves the folder's format as it is.
func Check(ctx context.Context, dir string, opts Options) error {
	opts.keepFormat = true
	s, err := open(dir, opts, nil)
	if err != nil {
		return err
	}
	return errors.Join(s.Ready(ctx), s.Close())
}

// Now returns the store's clock, to the millisecond.
func (s *Store) Now() time.Time { return s.clock.now() }

// Ready says whether a claim made now would be safe: the store is open, has not
// failed, the engine's last background write succeeded, and the clock has not
// jumped. It touches no disk.
func (s *Store) Ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return unavailable(err)
	}
	if err := s.failure.err(); err != nil {
		return err
	}
	if !s.calls.open() {
		return errClosed
	}
	if err := s.trouble.err(); err != nil {
		return err
	}
	return s.checkClock()
}

// Failed is closed once the store has failed for good. Ready then says why.
func (s *Store) Failed() <-chan struct{} { return s.failure.ch }

// Close waits for running calls, writes the clock's last mark and releases the
// folder. After the store has failed for good it releases nothing: the folder
// stays locked until the process ends, and Close returns the cause.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Store) close() error {
	idle := s.calls.shut()
	select {
	case <-idle:
	case <-s.failure.ch:
	}
	s.stopExpirer()
	s.stopScrubber()
	s.stopNotes()
	s.workers.stop()
	err := s.failure.err()
	if err == nil {
		s.workers.wait() // of a store that has failed, some may be held for good
		err = s.guard(s.writeClock)
	}
	if err == nil {
		s.note()
	}
	if err := errors.Join(err, s.closeEngine()); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}
