package workbench

import (
	"errors"
	"sort"
	"strconv"
	"strings"

	"holdfast.dev/gateway/internal/connectors"
)

// Finding is one thing wrong with a manifest or its fixtures.
type Finding struct {
	File    string
	Line    int    // 1-based; 0 where no line can be named
	Pointer string // place in the file as a JSON Pointer, "" for the whole
	Reason  string // one plain sentence
}

// String writes a finding as compilers do.
func (f Finding) String() string {
	place := f.File
	if f.Line > 0 {
		place += ":" + strconv.Itoa(f.Line)
	}
	if f.Pointer != "" {
		place += " (" + f.Pointer + ")"
	}
	return place + ": " + f.Reason
}

// findingsOf takes apart what a manifest or a file was refused with.
func findingsOf(file string, err error) []Finding {
	var bad *connectors.ManifestError
	if !errors.As(err, &bad) {
		return []Finding{{File: file, Reason: err.Error()}}
	}
	return fromProblems(file, bad.Problems)
}

func fromProblems(file string, problems []connectors.ManifestProblem) []Finding {
	var list []Finding
	for _, p := range problems {
		list = append(list, Finding{File: file, Line: p.Line, Pointer: p.Pointer, Reason: p.Reason})
	}
	return list
}

func sortFindings(list []Finding) {
	sort.SliceStable(list, func(i, j int) bool {
		if list[i].File != list[j].File {
			return list[i].File < list[j].File
		}
		return list[i].Line < list[j].Line
	})
}

// lineOf finds the line of the nearest place that exists.
func lineOf(lines map[string]int, pointer string) int {
	for {
		if line, ok := lines[pointer]; ok {
			return line
		}
		cut := strings.LastIndexByte(pointer, '/')
		if cut < 0 {
			return 0
		}
		pointer = pointer[:cut]
	}
}
