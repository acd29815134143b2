package pebblestore

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestACompactionThatFailsAtOpenIsNotTheEnd: one damaged table is answered with an
// error where it is read, and keeps nobody from the others.
func TestACompactionThatFailsAtOpenIsNotTheEnd(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	tr := &trouble{log: log, failure: newFailure(log)}
	tr.flushed(nil)
	damaged := errors.New("checksum mismatch")
	go tr.failed(damaged)
	require.Eventually(t, func() bool { return errors.Is(tr.err(), damaged) || tr.failure.err() != nil }, 10*time.Second, time.Millisecond)
	require.NoError(t, tr.failure.err())
	tr.compacted(nil)
	require.NoError(t, tr.err())
}
