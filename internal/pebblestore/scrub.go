package pebblestore

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// What was deleted, or has expired, is there for nobody; but its bytes lie in
// the engine's files until these are written anew, and where nothing else is
// written that may be never. Values hold personal data, so the scrubber sees to
// it: it has the engine rewrite a small part of the keys at a time, one after
// another, and when it begins anew it lets go of the log files that are kept for
// reuse, which hold whatever was once written.

const (
	// scrubEvery is the time between two parts, so that a round takes 21 hours
	// and each part is a small load. A process that is started again goes on
	// with the next part.
	scrubEvery = 5 * time.Minute
	// scrubParts is how many parts a round has: one for each first byte of a
	// scope, which is a hash.
	scrubParts = 256
)

// keyScrub is where the store keeps which part comes next.
var keyScrub = []byte{tagStore, 's'}

// startScrubber scrubs the next part at each tick until the function it returns
// is called, which waits for the part in hand.
func (s *Store) startScrubber(ticks <-chan time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.failure.ch:
				return
			case <-ticks:
			}
			if err := s.guard(func() error { return s.scrubNext(ctx) }); err != nil && ctx.Err() == nil {
				s.log.Error("cannot rewrite files to let go of deleted values", "error", err)
			}
		}
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-s.failure.ch: // it may be held inside the engine
		}
	}
}

// scrubNext rewrites the part that comes next.
func (s *Store) scrubNext(ctx context.Context) error {
	mark, ok, err := s.getRaw(keyScrub)
	if err != nil {
		return err
	}
	var part byte
	if ok && len(mark) == 1 {
		part = mark[0]
	}
	if part == 0 {
		if err := s.dropLogs(); err != nil {
			return err
		}
	}
	if err := s.scrub(ctx, part); err != nil {
		return err
	}
	// Not synced: a crash that takes it back only has a part done twice.
	return s.db.Set(keyScrub, []byte{part + 1}, pebble.NoSync)
}

// scrub has the engine rewrite every file that has a deletion in some scopes,
// down to where nothing is beneath it and it can be dropped with what it deleted.
func (s *Store) scrub(ctx context.Context, part byte) error {
	lower, upper := []byte{tagScope, part}, prefixEnd([]byte{tagScope, part})
	if err := s.db.Compact(ctx, lower, upper, false); err != nil {
		return fmt.Errorf("rewrite part %d: %w", part, err)
	}
	return nil
}

// dropLogs removes every log file that there is. The engine keeps some to write
// over, and each flush begins a log in place of the oldest one; while it
// goes on none is written over, all are new.
func (s *Store) dropLogs() error {
	s.freshLogs.Store(true)
	defer s.freshLogs.Store(false)
	for range memTables + 3 { // as many as are ever kept, the present one, and one to be sure
		if err := s.db.Flush(); err != nil {
			return fmt.Errorf("begin a new log: %w", err)
		}
	}
	return nil
}
