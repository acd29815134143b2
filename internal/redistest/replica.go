package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// StartReplica runs a replica of a server, waits until it is in step, and stops
// it when the test ends.
func StartReplica(t testing.TB, master *Server, config ...string) *Server {
	t.Helper()
	s := Start(t, append([]string{"repl-diskless-sync-delay 0"}, config...)...)
	if err := s.Follow(t.Context(), master); err != nil {
		t.Fatal(err)
	}
	return s
}

// Follow makes the server a replica of another and waits until it is in step.
func (s *Server) Follow(ctx context.Context, master *Server) error {
	if _, err := master.Do(ctx, "CONFIG", "SET", "repl-diskless-sync-delay", "0"); err != nil {
		return fmt.Errorf("prepare master: %w", err)
	}
	if _, err := s.Do(ctx, "REPLICAOF", "127.0.0.1", strconv.Itoa(master.port)); err != nil {
		return fmt.Errorf("make replica: %w", err)
	}
	// The master's view is what a gateway goes by.
	return s.until(ctx, "the replica is not in step", func() bool {
		info, err := master.Do(ctx, "INFO", "replication")
		return err == nil && strings.Contains(info, fmt.Sprintf("port=%d,state=online", s.port))
	})
}

// Promote makes a replica a master.
func (s *Server) Promote(ctx context.Context) error {
	_, err := s.Do(ctx, "REPLICAOF", "NO", "ONE")
	return err
}

// until asks until the answer is yes.
func (s *Server) until(ctx context.Context, otherwise string, ok func() bool) error {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("redis: %s within %s", otherwise, startLimit)
		}
	}
	return nil
}
