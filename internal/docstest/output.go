package docstest

import (
	"fmt"
	"strings"
)

// Matches says whether an output is the one that a page shows: line for line,
// where "…" stands for anything within a line (an id, a time), and a line that is
// only "…" for any number of lines. Blanks at the ends of lines do not count.
func Matches(shown, got string) error {
	want, have := trimmed(shown), trimmed(got)
	// reach[j]: the lines shown so far can be the first j lines of the output.
	reach := make([]bool, len(have)+1)
	reach[0] = true
	for i, line := range want {
		next := make([]bool, len(have)+1)
		if line == anything {
			open := false
			for j := range next {
				open = open || reach[j]
				next[j] = open
			}
		} else {
			for j := range have {
				next[j+1] = reach[j] && lineIs(line, have[j])
			}
		}
		if !some(next) {
			return fmt.Errorf("line %d is not in the output where it should be: %q\noutput:\n%s", i+1, line, got)
		}
		reach = next
	}
	if !reach[len(have)] {
		return fmt.Errorf("the output has more lines than are shown\noutput:\n%s", got)
	}
	return nil
}

const anything = "…"

// lineIs says whether a line is the one shown. The parts between are found
// leftmost, which finds them if anything does.
func lineIs(shown, got string) bool {
	parts := strings.Split(shown, anything)
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return shown == got
	}
	if len(got) < len(first)+len(last) || !strings.HasPrefix(got, first) || !strings.HasSuffix(got, last) {
		return false
	}
	rest := got[len(first) : len(got)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(rest, part)
		if at < 0 {
			return false
		}
		rest = rest[at+len(part):]
	}
	return true
}

func trimmed(s string) []string {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil
	}
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
	}
	return lines
}

func some(list []bool) bool {
	for _, b := range list {
		if b {
			return true
		}
	}
	return false
}
