package pebblestore

import (
	"context"
	"fmt"

	"holdfast.dev/gateway/internal/ledger"
)

// outcome is what a background call came to.
type outcome[T any] struct {
	value T
	err   error
}

// call runs one call of the store in two parts: locked, while it holds the
// scope's stripe, and what locked returned, after it has given it up.
//
// Both run on a goroutine of the store's: a disk that hangs cannot hold a caller
// beyond its context. The stripe is waited for on the caller's, so that behind
// a hanging disk one goroutine is left per stripe and not one per caller.
func call[T any](
	ctx context.Context, s *Store, scope ledger.Scope, locked func(*stripe) (func() (T, error), error),
) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, unavailable(err)
	}
	if err := s.failure.err(); err != nil {
		return none, err
	}
	if !s.calls.enter() {
		return none, errClosed
	}
	st := s.stripe(scope)
	if err := st.lock(ctx, s.failure); err != nil {
		s.calls.leave()
		return none, err
	}
	done := make(chan outcome[T], 1)
	s.workers.run(func() {
		v, err := run(s, st, locked)
		s.calls.leave()
		done <- outcome[T]{v, err}
	})
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return none, unavailable(ctx.Err())
	case <-s.failure.ch:
		return none, s.failure.err()
	}
}

func run[T any](s *Store, st *stripe, locked func(*stripe) (func() (T, error), error)) (value T, err error) {
	defer s.catch(&err)
	finish, err := func() (finish func() (T, error), err error) {
		defer st.unlock()
		defer s.catch(&err) // before the next has the stripe
		return locked(st)
	}()
	if err != nil {
		return value, err
	}
	return finish()
}

// guard runs what no call is running beside: opening and closing. It returns
// though the engine is held by a failure in it.
func (s *Store) guard(f func() error) error {
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer s.catch(&err)
		err = f()
	}()
	select {
	case err := <-done:
		return err
	case <-s.failure.ch:
		return s.failure.err()
	}
}

// catch turns a panic into the store's failure. The engine panics where its log
// takes no more. So would a fault of ours; both leave the state of the store
// unknown.
func (s *Store) catch(err *error) {
	if p := recover(); p != nil {
		cause, _ := p.(error)
		s.failure.set(engineFailure{fmt.Sprintf("panic: %v", p), cause})
		*err = s.failure.err()
	}
}
