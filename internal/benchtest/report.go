package benchtest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Report is the table that docs/performance.md shows.
type Report struct {
	Machine Machine
	Rounds  int
	Notes   []string // what has to be known to read the table
	rows    []row
}

type row struct {
	Figure
	values, ours, bases []float64 // one for each round
}

func (r *Report) add(f Figure, rounds []Round) {
	added := row{Figure: f}
	for _, round := range rounds {
		ours, base := f.Of(round)
		value := ours
		if base != 0 {
			value /= base
		}
		added.values = append(added.values, value)
		added.ours, added.bases = append(added.ours, ours), append(added.bases, base)
	}
	r.rows = append(r.rows, added)
}

// Markdown is the report: the machine, the table, the notes.
func (r *Report) Markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s Medians of %d interleaved rounds, and the lowest and highest round.\n\n", r.Machine, r.Rounds)
	out.WriteString("| figure | goal | measured | lowest to highest | of which | met |\n|---|---|---|---|---|---|\n")
	for _, row := range r.rows {
		row.print(&out)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&out, "\n- %s", note)
	}
	return out.String()
}

func (r row) print(out *strings.Builder) {
	value := Median(r.values)
	met := ""
	if r.Goal != (Goal{}) {
		met = "**no**"
		if r.Goal.Met(value) {
			met = "yes"
		}
	}
	of := r.Unit
	if Median(r.bases) != 0 {
		of = fmt.Sprintf("%s ÷ %s %s", number(Median(r.ours)), number(Median(r.bases)), r.Unit)
	}
	fmt.Fprintf(out, "| %s | %s | %s | %s to %s | %s | %s |\n", r.Name, r.Goal, number(value),
		number(slices.Min(r.values)), number(slices.Max(r.values)), strings.TrimSpace(of), met)
}

// Median is the middle of values, or the mean of the two in the middle; NaN of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// String is a sample in one line.
func (s Sample) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, name+" "+number(s[name]))
	}
	return strings.Join(parts, ", ")
}

// number has as many digits as mean something.
func number(x float64) string {
	switch {
	case x == math.Trunc(x) && math.Abs(x) < 1000 || math.Abs(x) >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case math.Abs(x) >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case math.Abs(x) >= 0.1:
		return strconv.FormatFloat(x, 'f', 2, 64)
	default:
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
}
