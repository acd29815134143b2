package benchtest_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/benchtest"
)

var (
	rounds  = flag.Int("rounds", 1, "rounds of each contestant; fewer than 3 are a smoke test")
	length  = flag.Duration("time", 200*time.Millisecond, "how long a round is measured")
	binary  = flag.String("program", "", "a gateway that is built already; empty: build one")
	other   = flag.String("against", "", "another build of the gateway: hold the two against each other, and nothing else")
	which   = flag.String("which", "", "regular expression: only contests whose names match")
	records = flag.Int("records", 100_000, "records that expire at once, and that lie in a store opened again")
)

// TestBench prints the table of docs/performance.md. `make bench` measures; as a
// test it only sees that every contest can be held.
func TestBench(t *testing.T) {
	wanted, err := regexp.Compile(*which)
	require.NoError(t, err)
	if os.Getenv("GOGC") == "" { // what runs in this process has the collector that the gateway has (cmd/gateway/memory.go)
		usual := debug.SetGCPercent(400)
		t.Cleanup(func() { debug.SetGCPercent(usual) })
	}
	b := &benchtest.Bench{Rounds: *rounds, Time: *length, Short: *rounds < 3, Dir: t.TempDir(), Program: build(t), Records: *records}
	report := &benchtest.Report{Rounds: b.Rounds, Notes: benchtest.Notes()}
	report.Machine, err = benchtest.ReadMachine(b.Dir)
	require.NoError(t, err)
	began := time.Now()
	contests := benchtest.Contests(b.Short)
	if *other != "" {
		contests = benchtest.Against(*other)
	}
	for _, e := range contests {
		if wanted.MatchString(e.Name) {
			// One that fails is missing in the report, and the others are not.
			t.Run(e.Name, func(t *testing.T) { b.Run(t, e.Open(t, b), report) })
		}
	}
	t.Logf("took %s", time.Since(began).Round(time.Second))
	if !b.Short {
		fmt.Fprintln(os.Stdout, report.Markdown())
	}
}

// build makes the gateway as it ships.
func build(t *testing.T) string {
	t.Helper()
	if *binary != "" {
		return *binary
	}
	program := filepath.Join(t.TempDir(), "gateway")
	out, err := exec.Command("go", "build", "-o", program, "holdfast.dev/gateway/cmd/gateway").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}
