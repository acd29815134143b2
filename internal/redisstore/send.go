package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// once is a command that the client library must not send a second time by
// itself after it may have reached a server. Steps are repeatable by their
// nonce, so a second run would do no harm; but a re-send takes time that the
// caller has not got, and the caller repeats with a decision.
type once struct{ *redis.Cmd }

// NoRetry is asked by the library before a re-send.
func (once) NoRetry() bool { return true }

func newOnce(ctx context.Context, args []any) once { return once{redis.NewCmd(ctx, args...)} }

// sender carries a command to the server and brings its reply. A reply of nil
// is returned as the error redis.Nil.
type sender interface {
	send(ctx context.Context, cmd once) (any, error)
	close() error
}

func newSender(client redis.UniversalClient, pipeline bool) (sender, error) {
	if !pipeline {
		return pooled{client}, nil
	}
	// The deferred face: its futures can be waited for with the caller's own
	// context, which the blocking face ignores.
	ap, err := client.AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{
		MaxQueuedCommands: maxQueued,
		// No caller has two commands under way that depend on each other.
		Unordered:            true,
		MaxConcurrentBatches: batches,
		MaxBatchSize:         batchSize,
	})
	if err != nil {
		return nil, fmt.Errorf("set up pipelining: %w", err)
	}
	return pipelined{ap}, nil
}

// maxQueued bounds the memory of a gateway whose server has stalled. It is far
// above what 2 s of a working server leave in the queue.
const maxQueued = 16384

// One batch at a time would have the server wait while a batch is encoded, and
// the client while it runs. With several, each on a connection of its own, both
// work all the time, and none waits for a long batch to end; small ones leave
// room for others when few callers are there. A batch grows beyond its size when
// all others are under way. Measured with 16 to 256 callers, on one machine,
// 16 batches of 8 made 2.5 to 3 times as many steps as one batch of 200.
const (
	batches   = 16
	batchSize = 8
)

// pooled gives each command a connection for the time of its round trip.
type pooled struct{ client redis.UniversalClient }

func (p pooled) send(ctx context.Context, cmd once) (any, error) {
	// The error is the command's own; with a hook it might be another.
	_ = p.client.Process(ctx, cmd)
	return cmd.Result()
}

func (pooled) close() error { return nil }

// pipelined lets commands of many callers share a connection and a round trip.
// A caller that stops waiting leaves its command behind: it may still be sent,
// which is what an error of Apply says anyhow.
type pipelined struct{ ap *redis.AutoPipeliner }

func (p pipelined) send(ctx context.Context, cmd once) (any, error) {
	future := p.ap.Submit(ctx, cmd)
	if err := future.WaitContext(ctx); err != nil {
		return nil, err
	}
	return cmd.Result()
}

func (p pipelined) close() error { return p.ap.Close() }
