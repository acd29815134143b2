package benchtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/benchtest"
)

// paced gives a contestant its rounds beforehand and notes its turns.
func paced(name string, turns *[]string, values ...float64) benchtest.Contestant {
	n := 0
	return benchtest.Contestant{Name: name, Round: func(context.Context) (benchtest.Sample, error) {
		*turns = append(*turns, name)
		n++
		return benchtest.Sample{"rate": values[n-1]}, nil
	}}
}

func TestReport(t *testing.T) {
	var turns []string
	closed := false
	b := benchtest.Bench{Rounds: 3}
	report := benchtest.Report{Rounds: 3, Notes: []string{"a note"}}
	b.Run(t, benchtest.Contest{
		Name:        "contest",
		Contestants: []benchtest.Contestant{paced("a", &turns, 10, 900, 30), paced("b", &turns, 20, 1000, 30)},
		Figures: []benchtest.Figure{
			{Name: "fast", Unit: "/s", Goal: benchtest.AtLeast(0.9), Of: benchtest.Ratio("a", "b", "rate")},
			{Name: "cheap", Unit: "/s", Goal: benchtest.AtMost(0.5), Of: benchtest.Ratio("a", "b", "rate")},
			{Name: "alone", Unit: "B", Of: benchtest.Value("a", "rate")},
		},
		Close: func() { closed = true },
	}, &report)
	require.Equal(t, []string{"a", "b", "b", "a", "a", "b"}, turns, "the order turns with each round")
	require.True(t, closed)
	text := report.Markdown()
	// The median of the quotients, 0.5, 0.9 and 1; not the quotient of the medians.
	require.Contains(t, text, "| fast | ≥ 0.90 | 0.90 | 0.50 to 1 | 30 ÷ 30 /s | yes |\n")
	require.Contains(t, text, "| cheap | ≤ 0.50 | 0.90 | 0.50 to 1 | 30 ÷ 30 /s | **no** |\n")
	require.Contains(t, text, "| alone |  | 30 | 10 to 900 | B |  |\n")
	require.Contains(t, text, "\n- a note")
}

// failing takes a t.Fatalf for what it is.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Fatalf(string, ...any)    { f.failed = true; panic(f) }
func (f *failing) Context() context.Context { return context.Background() }
func (f *failing) Helper()                  {}

func TestAFailedRoundEndsAContest(t *testing.T) {
	f := &failing{}
	closed := false
	require.Panics(t, func() {
		(&benchtest.Bench{Rounds: 1}).Run(f, benchtest.Contest{
			Contestants: []benchtest.Contestant{{Name: "a", Round: func(context.Context) (benchtest.Sample, error) {
				return nil, errors.New("429")
			}}},
			Close: func() { closed = true },
		}, &benchtest.Report{})
	})
	require.True(t, f.failed)
	require.True(t, closed)
}

func TestMedian(t *testing.T) {
	require.InDelta(t, 2, benchtest.Median([]float64{9, 1, 2}), 0)
	require.InDelta(t, 1.5, benchtest.Median([]float64{2, 1}), 0)
}

func TestGoals(t *testing.T) {
	require.True(t, benchtest.Goal{Zero: true}.Met(0))
	require.False(t, benchtest.Goal{Zero: true}.Met(1))
	require.True(t, benchtest.AtLeast(1).Met(1))
	require.False(t, benchtest.AtMost(1).Met(1.01))
}

func TestMachine(t *testing.T) {
	m, err := benchtest.ReadMachine(t.TempDir())
	require.NoError(t, err)
	require.NotEmpty(t, m.CPU)
	require.NotEmpty(t, m.Kernel)
	require.NotEmpty(t, m.FileSystem)
	require.Positive(t, m.Sync)
	require.Contains(t, m.Redis, "redis-server ")
}
