package pebblestore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"holdfast.dev/gateway/internal/ledger"
)

// trouble is what the engine reports of its background work. A flush or a
// compaction that fails is repeated by the engine itself until it succeeds;
// until then claims may at any time be stopped for want of room, so the store is
// not ready.
type trouble struct {
	log     *slog.Logger
	failure *failure
	opened  atomic.Bool

	mu         sync.Mutex
	ended      error // how the last flush ended, to tell whose a background error is
	flush      error // nil once a flush has succeeded
	compaction error // nil once a compaction has succeeded
}

func (t *trouble) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	cause := cmp.Or(t.flush, t.compaction)
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%w: the last background write to disk failed: %w", ledger.ErrNotReady, cause)
}

// failed notes a background error. The engine repeats at once what failed, so
// only the first of a kind is logged.
//
// While the engine is being opened it waits for what its log holds to be written
// to tables, and would repeat that without a pause and without an end, on a full
// disk say. So there the store fails, and the engine is held where it stands, as
// at a fatal error. It waits for no compaction, which may already have met a
// table that is damaged.
func (t *trouble) failed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind := &t.compaction
	if errors.Is(err, t.ended) {
		kind = &t.flush
		if !t.opened.Load() {
			t.mu.Unlock()
			t.failure.set(fmt.Errorf("write to tables what the log holds: %w", err))
			select {}
		}
	}
	if *kind == nil {
		t.log.Error("storage engine: background write failed", "error", err)
	}
	*kind = err
}

func (t *trouble) flushed(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended = err; err == nil {
		t.over(&t.flush)
	}
}

func (t *trouble) compacted(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.over(&t.compaction)
	}
}

func (t *trouble) over(kind *error) {
	if *kind != nil {
		t.log.Info("storage engine: background writes succeed again")
	}
	*kind = nil
}

func (t *trouble) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: t.failed,
		FlushEnd:        func(info pebble.FlushInfo) { t.flushed(info.Err) },
		CompactionEnd:   func(info pebble.CompactionInfo) { t.compacted(info.Err) },
		// The default of this one is Fatalf. One damaged block is answered with
		// ErrCorrupt where it is read, and must not stop every tenant.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			t.log.Error("storage engine: a table file is damaged", "path", info.Path)
		},
		LowDiskSpace: func(info pebble.LowDiskSpaceInfo) {
			t.log.Warn("storage engine: disk space is running low",
				"available_bytes", info.AvailBytes, "total_bytes", info.TotalBytes)
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			t.log.Warn("storage engine: writes wait for the disk", "reason", info.Reason)
		},
	}
}

func (t *trouble) diskSlow(info vfs.DiskSlowInfo) {
	t.log.Warn("storage engine: the disk is slow", "operation", info.OpType.String(), "duration", info.Duration)
}
