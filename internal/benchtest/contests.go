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

// Contests are all contests, in the order of the report. The short ones are few and
// small, and see only that everything works.
func Contests(short bool) []Entry {
	return slices.Concat(httpContests(short), identityContests(short), storeContests(short))
}

// Notes say how the figures came to be.
func Notes() []string {
	return httpNotes()
}
