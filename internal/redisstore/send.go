package redisstore

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// once is a command that the client library must not send a second time by
// itself after it may have reached a server. Steps are repeatable by their
// nonce, so a second run would do no harm; but a re-send takes time that the
// caller has not got, and the caller repeats with a decision.
type once struct {
	*redis.Cmd
	key  string // its first one, by which a Cluster knows whom to send it to
	size int    // about how many bytes it takes
}

// NoRetry is asked by the library before a re-send.
func (once) NoRetry() bool { return true }

func newOnce(ctx context.Context, key string, args []any) once {
	size := 0
	for _, a := range args {
		size += 8 // what stands around it, or a number
		switch a := a.(type) {
		case *string:
			size += len(*a)
		case string:
			size += len(a)
		}
	}
	return once{redis.NewCmd(ctx, args...), key, size}
}

// sender carries a command to the server and brings its reply. A reply of nil
// is returned as the error redis.Nil.
type sender interface {
	send(ctx context.Context, cmd once) (any, error)
	close()
}

func newSender(client redis.UniversalClient, pipeline bool) sender {
	if pipeline {
		return &pipelined{pooled: pooled{client}, byMaster: map[string]*road{}}
	}
	return pooled{client}
}

// pooled gives each command a connection for the time of its round trip.
type pooled struct{ client redis.UniversalClient }

func (p pooled) send(ctx context.Context, cmd once) (any, error) {
	// The error is the command's own; with a hook it might be another.
	_ = p.client.Process(ctx, cmd)
	return cmd.Result()
}

func (pooled) close() {}

// Lanes are the round trips to one master that may be under way at a time, each on
// a connection of its own. With several, the client encodes some while the server
// runs others, and none waits for a long batch to end.
//
// A batch is what a server takes from a connection at once, between two syncs of
// its log (PROTO_IOBUF_LEN of https://github.com/redis/redis/blob/7.0/src/server.h):
// what is behind it would wait for its next turn there, and those in front of it
// too, for theirs. So many reads go together, some steps, and large ones alone.
const (
	lanes      = 16
	batchBytes = 16 << 10
)

// maxQueued bounds the memory of a gateway whose server has stalled. It is far
// above what 2 s of a working server leave in the queue.
const maxQueued = 16384

var errQueueFull = errors.New("too many calls wait for redis")

// pipelined lets commands of many callers share a round trip, where they would have
// to wait for one otherwise. While a lane is free, a caller sends its own command as
// if there was nobody else, without handing it to anybody. When all are taken,
// commands gather, and whoever is done with a lane leaves it to the next batch.
//
// No two commands under way depend on each other, since every caller waits for its
// reply. A caller that stops waiting leaves its command behind: it may still be
// sent, which is what an error of Apply says anyhow. One that sends for itself heeds
// its context's deadline, not its being cancelled: that would take a goroutine more,
// and the store's time-out is near.
type pipelined struct {
	pooled

	mu       sync.Mutex
	byMaster map[string]*road // by the address the client knows it under
	batches  sync.WaitGroup
}

// road is the way to one master: one that has stalled holds up no other's commands.
type road struct {
	mu      sync.Mutex
	taken   int // lanes
	waiting []*queued
}

// queued is a command that waits for a lane.
type queued struct {
	ctx  context.Context
	cmd  once
	done chan struct{} // closed when the command has its reply or error
}

func (p *pipelined) send(ctx context.Context, cmd once) (any, error) {
	r := p.road(ctx, cmd.key)
	q, err := r.enter(ctx, cmd)
	if err != nil {
		return nil, err
	}
	if q == nil {
		defer p.handOn(r) // however it ends: a lane that is not left is lost
		return p.pooled.send(ctx, cmd)
	}
	select {
	case <-q.done:
		return cmd.Result()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// handOn leaves the caller's lane to the next batch.
func (p *pipelined) handOn(r *road) {
	if next := r.leave(); len(next) > 0 {
		p.batches.Go(func() { p.run(r, next) })
	}
}

// road is the one that leads to the master of a key, as far as the client knows:
// if it errs, the library finds the way, and some other's lane is taken for it.
func (p *pipelined) road(ctx context.Context, key string) *road {
	name := ""
	if c, ok := p.client.(*redis.ClusterClient); ok {
		if node, err := c.MasterForKey(ctx, key); err == nil {
			name = node.Options().Addr
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.byMaster[name]
	if r == nil {
		r = &road{}
		p.byMaster[name] = r
	}
	return r
}

// enter takes a lane for a command and returns nil, or puts it in the queue.
func (r *road) enter(ctx context.Context, cmd once) (*queued, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.taken < lanes:
		r.taken++
		return nil, nil
	case len(r.waiting) >= maxQueued:
		return nil, errQueueFull
	default:
		q := &queued{ctx: ctx, cmd: cmd, done: make(chan struct{})}
		r.waiting = append(r.waiting, q)
		return q, nil
	}
}

// leave returns the commands that the caller's lane goes to. If nobody waits there
// are none, and the lane is free.
func (r *road) leave() []*queued {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.taken--
		r.waiting = nil
		return nil
	}
	n := 1
	for size := r.waiting[0].cmd.size; n < len(r.waiting); n++ {
		if size += r.waiting[n].cmd.size; size > batchBytes {
			break
		}
	}
	next := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	return next
}

// run sends batches over one lane for as long as commands wait.
func (p *pipelined) run(r *road, batch []*queued) {
	for ; len(batch) > 0; batch = r.leave() {
		pipe := p.client.Pipeline()
		for _, q := range batch {
			if err := q.ctx.Err(); err != nil { // nobody waits for it any more
				q.cmd.SetErr(err)
				continue
			}
			_ = pipe.Process(q.ctx, q.cmd)
		}
		_, _ = pipe.Exec(context.Background()) // each command has an error of its own
		for _, q := range batch {
			close(q.done)
		}
	}
}

// close waits for commands whose callers have gone. Others there are none of.
func (p *pipelined) close() { p.batches.Wait() }
