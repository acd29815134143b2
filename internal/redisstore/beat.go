package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/loss"
)

// clockJump is how far the server's clock and the machine's may disagree about
// the time between two beats. It is far above what clocks that are kept in step
// differ by, and below any lease.
const clockJump = 5 * time.Second

// beatLife is how long a beat stands after the process that made it has gone.
const beatLife = 30 * 24 * time.Hour

// beats are what this process has written to each master, to notice if it is
// lost. A beat is a step like a claim, under the same acknowledgement, put on
// condition that the one before it is still there. So data that was rolled back
// past the last beat shows at the next one, and so does a clock that jumped in
// between.
type beats struct {
	name string // of this process

	mu    sync.Mutex // one round of beats at a time
	known map[ledger.Scope]*beat

	note sync.Mutex
	lost *loss.Noticed // noticed, and not yet in the store
}

// beat is the last one of a scope.
type beat struct {
	version ledger.Version // zero: none was made yet
	pending ledger.Nonce   // of the one whose fate is not known; zero: none
	server  time.Time      // what the server's clock showed; zero: do not compare
	began   time.Duration  // when it was made, on the machine's clock: not before,
	ended   time.Duration  // and not after
}

func newBeats() *beats { return &beats{name: rand.Text(), known: map[ledger.Scope]*beat{}} }

// Beat is for a gateway to call about once a second: it writes a beat to each
// master and notes in the store what it finds lost, after which [Store.Ready]
// refuses, here and in every other process, until an operator accepts it. An
// error means that this could not be done just now.
//
// It also marks a store of an earlier format, or of none, as of this release's:
// only a gateway that serves makes beats. In one of a later format it does nothing
// but say so.
func (s *Store) Beat(ctx context.Context) error {
	s.beats.mu.Lock()
	defer s.beats.mu.Unlock()
	if err := s.raiseFormat(ctx); err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	scopes, err := s.beatScopes(ctx)
	if err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	var errs []error
	for _, scope := range scopes {
		b := s.beats.known[scope]
		if b == nil {
			b = &beat{}
			s.beats.known[scope] = b
		}
		noticed, err := s.beat(ctx, scope, b)
		if noticed != nil {
			s.log.ErrorContext(ctx, "redis has lost data or its clock has jumped", "why", noticed.Why)
			s.beats.keep(*noticed)
			_, err = s.beat(ctx, scope, b) // so that the next loss is noticed too
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, s.noteLoss(ctx))...); err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	return nil
}

// beatScopes returns a scope on each master; no tenant's name has a slash.
func (s *Store) beatScopes(ctx context.Context) ([]ledger.Scope, error) {
	at := func(i int) ledger.Scope { return ledger.ScopeOf("/beat/" + strconv.Itoa(i)) }
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []ledger.Scope{at(0)}, nil
	}
	var mu sync.Mutex
	var masters []string
	if err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, node.Options().Addr)
		return nil
	}); err != nil {
		return nil, unavailable(err)
	}
	var scopes []ledger.Scope
	// A master without slots is never found; it keeps nothing either.
	for i := 0; len(masters) > 0 && i < 1000; i++ {
		node, err := s.masterOf(ctx, keysOf(at(i)))
		if err != nil {
			return nil, err
		}
		if n := slices.Index(masters, node.Options().Addr); n >= 0 {
			masters = slices.Delete(masters, n, n+1)
			scopes = append(scopes, at(i))
		}
	}
	return scopes, nil
}

// beat makes one beat. It returns what it finds lost.
func (s *Store) beat(ctx context.Context, scope ledger.Scope, b *beat) (*loss.Noticed, error) {
	key := ledger.Key{Kind: ledger.Meta, ID: "beat/" + s.beats.name}
	if b.pending == (ledger.Nonce{}) {
		b.pending = ledger.NewNonce()
	}
	for range 3 {
		at := s.Now()
		began := s.clock.boot()
		res, fresh, err := s.applied(ctx, scope, ledger.Step{
			Nonce:  b.pending, // of the last one, while it is not known whether that was made
			At:     at,
			Expect: []ledger.Expect{{Key: key, Version: b.version}},
			Put:    []ledger.Put{{Key: key, Data: binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())), Expires: at.Add(beatLife)}},
			Fetch:  []ledger.Fetch{{Key: key}},
		})
		if err != nil {
			return nil, err
		}
		found, _ := res.Get(key)
		switch {
		case res.Applied, found.Version == b.pending.Version():
			next := beat{version: b.pending.Version(), server: b.server, began: b.began, ended: b.ended}
			var noticed *loss.Noticed
			if res.Applied && fresh {
				noticed = b.jump(res.Now, began, s.clock.boot())
				next.server, next.began, next.ended = res.Now, began, s.clock.boot()
			}
			*b = next
			return noticed, nil
		case found.Version == b.version:
			// Refused for its time; the estimate is right now.
		default:
			*b = beat{version: found.Version}
			return rolledBack(res.Now, found), nil
		}
	}
	return nil, fmt.Errorf("%w: the store's clock does not hold still", ledger.ErrUnavailable)
}

// rolledBack is a beat that is gone: an earlier one stands in its place, or none.
func rolledBack(now time.Time, found ledger.Value) *loss.Noticed {
	n := &loss.Noticed{At: now, Why: "redis has lost what was written last"}
	if len(found.Data) == 8 {
		n.From = decodeTime(string(found.Data))
	}
	return n
}

// jump compares the time that has passed since the last beat on both clocks.
func (b *beat) jump(server time.Time, began, ended time.Duration) *loss.Noticed {
	if b.server.IsZero() {
		return nil
	}
	passed := server.Sub(b.server)
	most, least := ended-b.began, began-b.ended
	slack := clockJump + most/wander
	switch {
	case passed > most+slack:
		return &loss.Noticed{At: server, From: b.server, Why: "redis's clock went forward by " + (passed - most).Round(time.Second).String()}
	case passed < least-slack:
		return &loss.Noticed{At: server, From: server, Why: "redis's clock went back by " + (least - passed).Round(time.Second).String()}
	default:
		return nil
	}
}

func (b *beats) keep(n loss.Noticed) {
	b.note.Lock()
	defer b.note.Unlock()
	if b.lost != nil {
		n = b.lost.Join(n)
	}
	b.lost = &n
}

func (b *beats) kept() *loss.Noticed {
	b.note.Lock()
	defer b.note.Unlock()
	return b.lost
}

// noteLoss writes what was noticed into the store, for all processes and for
// the time after this one.
func (s *Store) noteLoss(ctx context.Context) error {
	lost := s.beats.kept()
	if lost == nil {
		return nil
	}
	for range 3 {
		snap, err := s.Read(ctx, ledger.Platform, loss.Fetch()...)
		if err != nil {
			return err
		}
		note := *lost
		if there := loss.NoticedIn(snap); there != nil {
			note = there.Join(note)
		}
		data, err := note.Encode()
		if err != nil {
			return err
		}
		was, _ := snap.Get(loss.NoticedKey())
		res, err := s.Apply(ctx, ledger.Platform, ledger.Step{
			Nonce:  ledger.NewNonce(),
			At:     snap.Now,
			Expect: []ledger.Expect{{Key: loss.NoticedKey(), Version: was.Version}},
			Put:    []ledger.Put{{Key: loss.NoticedKey(), Data: data}},
		})
		if err != nil {
			return err
		}
		if res.Applied {
			s.beats.note.Lock()
			s.beats.lost = nil
			s.beats.note.Unlock()
			return nil
		}
	}
	return fmt.Errorf("%w: the note of a loss lost races", ledger.ErrUnavailable)
}
