package benchtest

import (
	"slices"
	"testing"
)

// Entry opens a contest when its turn comes, so that nothing else runs beside it.
type Entry struct {
	Name string
	// Open starts what the contest needs. What it starts ends by Contest.Close, or
	// by t.Cleanup where Open fails.
	Open func(t testing.TB, b *Bench) Contest
}

// Contests are all contests, in the order of the report.
func Contests() []Entry {
	return slices.Concat(identityContests())
}

// Notes say how the figures came to be.
func Notes() []string {
	return nil
}
