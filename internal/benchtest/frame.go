package benchtest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// Bench is what all contests of a run share.
type Bench struct {
	Rounds  int           // of each contestant; the report shows medians
	Time    time.Duration // how long a round is measured
	Short   bool          // only see that everything works: the figures mean nothing
	Dir     string        // data lives below it
	Program string        // the gateway as it ships
	Records int           // of a full store, where one is measured; 0: 100,000
}

// Contest is what is measured side by side.
type Contest struct {
	Name        string
	Contestants []Contestant
	Figures     []Figure
	Times       int    // more rounds where a small difference is looked for; 0: as many as all
	Close       func() // ends what the contestants need; may be nil
}

// Contestant measures one round of itself. An error ends the run.
type Contestant struct {
	Name  string
	Round func(ctx context.Context) (Sample, error)
}

// Sample is what one round brought, by what it is called.
type Sample map[string]float64

// Round is the samples of one round, by contestant.
type Round map[string]Sample

// Figure is one row of the report, out of what each round brought.
type Figure struct {
	Name string
	Unit string // of ours and base, if it has both
	Goal Goal
	// Of is what stands above and below the line. A base of 0 is none: what is
	// reported is ours.
	Of func(Round) (ours, base float64)
}

// Goal is a bound for a figure. The zero Goal is none.
type Goal struct {
	Least, Most float64 // the one that is not 0 holds; Zero: nothing at all
	Zero        bool
}

// AtLeast and AtMost are the goals there are, with [Goal].Zero.
func AtLeast(x float64) Goal { return Goal{Least: x} }

// AtMost is a bound from above.
func AtMost(x float64) Goal { return Goal{Most: x} }

// Met says whether a figure reaches the goal.
func (g Goal) Met(x float64) bool {
	switch {
	case g.Zero:
		return x == 0
	case g.Least != 0:
		return x >= g.Least
	default:
		return x <= g.Most
	}
}

// String is the goal as the report has it.
func (g Goal) String() string {
	switch {
	case g.Zero:
		return "0"
	case g.Least != 0:
		return fmt.Sprintf("≥ %.2f", g.Least)
	case g.Most != 0:
		return "≤ " + number(g.Most)
	default:
		return ""
	}
}

// Ratio is the quotient of what two contestants brought of the same.
func Ratio(ours, base, what string) func(Round) (float64, float64) {
	return func(r Round) (float64, float64) { return r[ours][what], r[base][what] }
}

// Value is what one contestant brought, without a base.
func Value(ours, what string) func(Round) (float64, float64) {
	return func(r Round) (float64, float64) { return r[ours][what], 0 }
}

// Run plays a contest and adds its figures to the report.
func (b *Bench) Run(t testing.TB, c Contest, report *Report) {
	t.Helper()
	if c.Close != nil {
		defer c.Close()
	}
	var rounds []Round
	for n := range b.Rounds * max(1, c.Times) {
		round := Round{}
		turns := slices.Clone(c.Contestants)
		if n%2 == 1 { // whoever comes behind another comes before it next time
			slices.Reverse(turns)
		}
		for _, who := range turns {
			sample, err := who.Round(t.Context())
			if err != nil {
				t.Fatalf("%s, round %d of %s: %v", c.Name, n+1, who.Name, err)
			}
			t.Logf("%s, round %d, %s: %s", c.Name, n+1, who.Name, sample)
			round[who.Name] = sample
		}
		rounds = append(rounds, round)
	}
	for _, f := range c.Figures {
		report.add(f, rounds)
	}
}
