// Package redisstore keeps a [ledger.Store] in Redis 7 or Valkey: standalone,
// behind Sentinel, or as a Cluster. Several gateways may share one.
//
// It owns the layout of the keys, the scripts, what an answer of Redis means,
// and when a Redis is fit to be trusted. It does not know what it stores: the
// rules of a write are in the packages above, which see the same contract over
// any driver.
//
// How it keeps the contract:
//
//   - One generic script applies a [ledger.Step] and one reads. A script runs
//     alone on its server, so a step is atomic and isolated; everything that
//     could fail is checked before the first write, so it is all or nothing.
//   - The script's last write is the step's nonce with the result. A repeat,
//     whoever sends it (this package after a lost reply, or the client library
//     after a redirect), gets that result and changes nothing.
//   - All keys of a scope carry one hash tag and so live on one master.
//   - Time is the server's alone. [Store.Now] only guesses it; the script checks
//     the guess.
//   - A script's answer carries an echo of its call, since many share a connection.
//   - Whatever is not a clear answer is [ledger.ErrUnavailable]: never a success
//     and never "absent".
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"holdfast.dev/gateway/internal/ledger"
)

// Store is a ledger in Redis. Its methods may be called from many goroutines.
type Store struct {
	client  redis.UniversalClient
	send    sender
	timeout time.Duration
	ack     ack
	acks    *acks
	beats   *beats
	log     *slog.Logger
	shift   func() time.Duration
	clock   *clock
	scripts scripts
	format  format

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup

	closing  sync.Once
	closeErr error
}

var _ ledger.Store = (*Store)(nil)

// Open returns a store over the Redis that the options name. It reports options
// that cannot be meant, and with [ledger.ErrFormat] a store that a newer release
// has marked as its own; a Redis that does not answer is no error here, since it
// may come later: [Store.Ready] tells.
func Open(ctx context.Context, opts Options) (*Store, error) {
	return open(ctx, opts, formatVersion)
}

// open is Open of a release that knows the formats up to one.
func open(ctx context.Context, opts Options, known uint32) (*Store, error) {
	target, err := opts.target()
	if err != nil {
		return nil, fmt.Errorf("open redis store: %w", err)
	}
	ack, err := parseAck(opts.Ack)
	if err != nil {
		return nil, fmt.Errorf("open redis store: %w", err)
	}
	s := &Store{
		client:  redis.NewUniversalClient(target),
		timeout: opts.timeout(),
		ack:     ack,
		log:     opts.logger(),
		shift:   opts.shift(),
		clock:   newClock(opts.shift()),
		scripts: newScripts(),
		format:  format{known: known},
	}
	s.beats = newBeats()
	s.acks = newAcks(ack, s.scripts.ack, s.timeout)
	s.send = newSender(s.client, opts.Pipeline)
	// The first answer sets the clock, so that the first step is not refused
	// for its time.
	switch err := s.checkFormat(ctx); {
	case errors.Is(err, ledger.ErrFormat):
		return nil, fmt.Errorf("open redis store: %w", errors.Join(err, s.Close()))
	case err != nil:
		s.log.WarnContext(ctx, "redis does not answer yet", "error", err)
	}
	return s, nil
}

// Now estimates the server's clock, at millisecond precision. Until the server
// has answered once it is the machine's own.
func (s *Store) Now() time.Time { return s.clock.now() }

// Close waits for running calls to end, each of which is bounded by the
// time-out, and drops the connections. Later calls are ErrUnavailable.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.running.Wait()
		s.acks.close()
		s.send.close()
		if err := s.client.Close(); err != nil {
			s.closeErr = fmt.Errorf("close redis store: %w", err)
		}
	})
	return s.closeErr
}

// begin admits a call and bounds it; the returned function ends it.
func (s *Store) begin(ctx context.Context) (context.Context, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w: nothing was sent: %w", ledger.ErrUnavailable, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, fmt.Errorf("%w: the store is closed", ledger.ErrUnavailable)
	}
	s.running.Add(1)
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	return ctx, func() { cancel(); s.running.Done() }, nil
}

// command sends one command on one key and returns its reply.
func (s *Store) command(ctx context.Context, name, key string, args ...any) (any, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	reply, err := s.send.send(ctx, newOnce(ctx, key, append([]any{name, key}, args...)))
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return reply, nil
}

// run runs a script. A server that does not know the script is sent its text;
// the first attempt cannot have run, so nothing is done twice.
func (s *Store) run(ctx context.Context, sc script, c call) (any, error) {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	return s.runIn(ctx, sc, c.withEcho())
}

// runIn is run within a call of the store that has begun, of a call that has an echo.
func (s *Store) runIn(ctx context.Context, sc script, c call) (any, error) {
	reply, err := s.send.send(ctx, newOnce(ctx, c.key, sc.bySum(c)))
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = s.send.send(ctx, newOnce(ctx, c.key, sc.byText(c)))
	}
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	return c.answer(reply)
}

// failed is the meaning of an error. In a Cluster one that leaves doubt may come
// of a master that is no more, which the library does not find out by itself: it
// goes on dialling the dead.
func (s *Store) failed(ctx context.Context, err error) error {
	err = meaning(err)
	if c, ok := s.client.(*redis.ClusterClient); ok && errors.Is(err, ledger.ErrUnavailable) {
		c.ReloadState(ctx)
	}
	return err
}
