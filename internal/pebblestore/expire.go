package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

const (
	// expireEvery is how often the expirer looks for values that are due. They
	// exist for nobody from their instant on; it only gives their room back.
	expireEvery = time.Second

	// expireMost bounds the work of one look. A write leaves three values that
	// end, so it is enough for 10,000 writes a second, more than one disk takes:
	// a backlog never lasts.
	expireMost = 32768

	// expireChunk bounds how many values of one scope go in one batch, and with
	// it how long the scope's steps wait, at some 10 microseconds each.
	expireChunk = 64

	// expireLag is how far behind the clock the expirer keeps looking. Finding
	// nothing must not mean stepping over the remains of everything deleted so
	// far, so it begins where it left off; a step that was being made meanwhile
	// may still add a value that ends a little earlier.
	expireLag = 10 * time.Second
)

// startExpirer deletes due values at each tick until the function it returns is
// called, which waits for the work in hand.
func (s *Store) startExpirer(ticks <-chan time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	x := &expirer{store: s, from: []byte{tagExpiry}}
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
			if _, err := x.look(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("cannot delete expired values", "error", err)
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

type expirer struct {
	store *Store
	from  []byte // nothing before this key is due
}

// look deletes what is due, and returns how many notes of expiry it dealt with.
func (x *expirer) look(ctx context.Context) (int, error) {
	now := x.store.clock.now()
	due, err := x.due(now)
	if err != nil {
		return 0, err
	}
	for scope, notes := range byScope(due) {
		for chunk := range slices.Chunk(notes, expireChunk) {
			if err := x.store.expire(ctx, scope, chunk); err != nil {
				return 0, err
			}
		}
	}
	x.goOn(due, now.Add(-expireLag).UnixMilli())
	return len(due), nil
}

// goOn begins the next look behind what this one has dealt with, as far as no
// step can still add to it.
func (x *expirer) goOn(due [][]byte, settled int64) {
	next := appendMillis([]byte{tagExpiry}, settled)
	if len(due) == expireMost {
		if last := after(due[len(due)-1]); bytes.Compare(last, next) < 0 {
			next = last
		}
	}
	if bytes.Compare(next, x.from) > 0 {
		x.from = next
	}
}

// byScope sorts notes by the scope of their values. What is no note goes with
// the platform's.
func byScope(notes [][]byte) map[ledger.Scope][][]byte {
	sorted := map[ledger.Scope][][]byte{}
	for _, note := range notes {
		_, scope, _, _ := parseExpiryKey(note)
		sorted[scope] = append(sorted[scope], note)
	}
	return sorted
}

func (x *expirer) due(now time.Time) ([][]byte, error) {
	r := span{
		lower: x.from, upper: appendMillis([]byte{tagExpiry}, now.UnixMilli()+1), limit: expireMost,
	}
	iter, err := x.store.db.NewIter(&pebble.IterOptions{LowerBound: r.lower, UpperBound: r.upper})
	if err != nil {
		return nil, readError("read due values", err)
	}
	return collect(iter, r, func(key, _ []byte) ([]byte, error) { return bytes.Clone(key), nil })
}

// expire deletes the values that notes of expiry name, those of them that still
// end then: one may have been put again meanwhile. It is not synced; a crash that
// takes the deletion back leaves the note, too.
func (s *Store) expire(ctx context.Context, scope ledger.Scope, notes [][]byte) error {
	_, err := call(ctx, s, scope, func(*stripe) (func() (struct{}, error), error) {
		b := s.db.NewBatch()
		var err error
		for _, note := range notes {
			expires, _, key, ok := parseExpiryKey(note)
			err = errors.Join(err, b.Delete(note, nil))
			if ok && err == nil {
				err = s.deleteEnding(b, key, expires)
			}
		}
		if err == nil {
			err = s.db.Apply(b, pebble.NoSync)
		}
		if err := errors.Join(err, b.Close()); err != nil {
			return nil, err
		}
		return func() (struct{}, error) { return struct{}{}, nil }, nil
	})
	return err
}

// deleteEnding deletes a value that ends at an instant.
func (s *Store) deleteEnding(b *pebble.Batch, key []byte, expires int64) error {
	ends := false
	_, err := view(s.db, key, func(raw []byte) error {
		e, err := decodeEnvelope(raw)
		ends = err == nil && e.expires == expires
		return err
	})
	if errors.Is(err, ledger.ErrCorrupt) {
		// What it is and when it ends is unknown, so it stays to be looked at.
		s.log.Error("a value that was to expire is unreadable and stays")
		return nil
	}
	if err != nil || !ends {
		return err
	}
	return b.Delete(key, nil)
}
