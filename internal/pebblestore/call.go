package pebblestore

import (
	"context"
	"fmt"

	"holdfast.dev/gateway/internal/ledger"
)

// task is one call of the store on its way. It is carried out on goroutines of the
// store's, so that a disk that hangs cannot hold a caller beyond its context.
type task struct {
	ctx     context.Context
	begin   func(*group) error // in its turn, alone on its stripe
	finish  func(error) error  // beside others, once all is durable that was begun, or an error; nil: there is nothing to do
	durable error              // what finish is to get
	err     error              // what it came to
	done    chan struct{}      // closed when it has
	behind  *task              // the next that waits; of the stripe
}

// call carries out what is done with the turn of begin.
func call[T any](ctx context.Context, s *Store, scope ledger.Scope, begin func(*group) (T, error)) (T, error) {
	var value, none T
	t := &task{ctx: ctx, done: make(chan struct{})}
	t.begin = func(g *group) (err error) {
		value, err = begin(g)
		return err
	}
	if err := s.carry(scope, t); err != nil {
		return none, err
	}
	return value, nil
}

// callLater carries out what fixes in its turn what is to be read, and reads it
// later. What begin returns is called in any case, be it with an error.
func callLater[T any](
	ctx context.Context, s *Store, scope ledger.Scope, begin func(*group) (func(durable error) (T, error), error),
) (T, error) {
	var value, none T
	t := &task{ctx: ctx, done: make(chan struct{})}
	t.begin = func(g *group) error {
		finish, err := begin(g)
		if err != nil {
			return err
		}
		t.finish = func(durable error) (err error) {
			value, err = finish(durable)
			return err
		}
		return nil
	}
	if err := s.carry(scope, t); err != nil {
		return none, err
	}
	return value, nil
}

// carry has a task carried out. It returns when that is done, the caller's context
// has ended, or the store has failed.
func (s *Store) carry(scope ledger.Scope, t *task) error {
	if err := t.ctx.Err(); err != nil {
		return unavailable(err)
	}
	if err := s.failure.err(); err != nil {
		return err
	}
	if !s.calls.enter() {
		return errClosed
	}
	st := s.stripe(scope)
	if st.enter(t) {
		s.workers.run(st.lead)
	}
	select {
	case <-t.done:
		return t.err
	case <-t.ctx.Done():
		if st.leave(t) {
			s.calls.leave()
		}
		return unavailable(t.ctx.Err())
	case <-s.failure.ch:
		return s.failure.err()
	}
}

// read carries out what is left of tasks, each beside the others since it may take
// long: the last one here, if that is wanted.
func (s *Store) read(tasks []*task, here bool) {
	for i, t := range tasks {
		if here && i == len(tasks)-1 {
			s.finish(t)
			return
		}
		s.workers.run(func() { s.finish(t) })
	}
}

func (s *Store) finish(t *task) {
	func() {
		defer s.catch(&t.err)
		t.err = t.finish(t.durable)
	}()
	s.answer(t)
}

// answer ends a task.
func (s *Store) answer(t *task) {
	s.calls.leave()
	close(t.done)
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
