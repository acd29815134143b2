package pebblestore

import "sync"

// idleWorkers bounds how many goroutines wait for the next job. As many groups as one
// sync ends, each of another stripe, end together and begin again together; each
// goroutine keeps some 16 KB of stack.
const idleWorkers = 64

// workers run jobs on goroutines that are kept for the next one: the stack that one
// needs is grown once, and not for each.
type workers struct {
	jobs  chan func()   // to one that waits
	seats chan struct{} // of those that wait
	end   chan struct{} // closed when none may wait any more
	alive sync.WaitGroup
}

func newWorkers() *workers {
	return &workers{jobs: make(chan func()), seats: make(chan struct{}, idleWorkers), end: make(chan struct{})}
}

// run has a job done by one that waits, or by a new one: it never waits itself.
func (w *workers) run(job func()) {
	select {
	case w.jobs <- job:
	default:
		w.alive.Go(func() { w.work(job) })
	}
}

func (w *workers) work(job func()) {
	for {
		job()
		select {
		case w.seats <- struct{}{}:
		default:
			return
		}
		select {
		case job = <-w.jobs:
			<-w.seats
		case <-w.end:
			return
		}
	}
}

// stop ends those that wait, and each other when its job is done. No job may be
// given from then on.
func (w *workers) stop() { close(w.end) }

// wait waits until all have ended.
func (w *workers) wait() { w.alive.Wait() }
