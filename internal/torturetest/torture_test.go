package torturetest_test

import (
	"flag"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/torturetest"
)

var (
	seeds  = flag.Int("seeds", 1, "how many seeds to play on each store")
	first  = flag.Uint64("first-seed", 1, "the first of them")
	calls  = flag.Int("calls", 600, "calls of do for each seed and store")
	agents = flag.Int("agents", 24, "agents that call at the same time")
)

// TestTorture plays seeds on both stores and prints what it did. `make torture`
// plays many.
func TestTorture(t *testing.T) {
	program := build(t)
	for _, store := range []string{"embedded", "redis"} {
		t.Run(store, func(t *testing.T) {
			var all torturetest.Report
			all.Faults = map[string]int{}
			for seed := *first; seed < *first+uint64(*seeds); seed++ {
				r, err := torturetest.Run(t.Context(), torturetest.Plan{
					Program: program, Dir: t.TempDir(), Redis: store == "redis", Seed: seed, Calls: *calls, Agents: *agents,
				})
				require.NoError(t, err, "seed %d", seed)
				t.Logf("seed %d: %d calls, %d faults, %d actions, %d effects, %d violations, %s",
					seed, r.Calls, r.Total(), r.Actions, r.Effects, len(r.Violations), r.Took.Round(time.Millisecond))
				for i, v := range r.Violations {
					if i == 20 {
						t.Errorf("seed %d: and %d more", seed, len(r.Violations)-i)
						break
					}
					t.Errorf("seed %d: %s", seed, v)
				}
				all.Calls += r.Calls
				all.Actions += r.Actions
				all.Effects += r.Effects
				all.Took += r.Took
				all.Violations = append(all.Violations, r.Violations...)
				for fault, n := range r.Faults {
					all.Faults[fault] += n
				}
			}
			t.Logf("%s: %d seeds, %d calls, %d actions, %d effects, %d faults, %d violations, %s",
				store, *seeds, all.Calls, all.Actions, all.Effects, all.Total(), len(all.Violations), all.Took.Round(time.Second))
			for _, fault := range slices.Sorted(maps.Keys(all.Faults)) {
				t.Logf("  %6d  %s", all.Faults[fault], fault)
			}
		})
	}
}

// build makes the gateway, without one of its protections if told so.
func build(t *testing.T, edits ...torturetest.Edit) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	program, err := torturetest.Build(root, t.TempDir(), edits...)
	require.NoError(t, err)
	return program
}
