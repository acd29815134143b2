// Package docstest reads the project's Markdown for the tests that hold it
// against the program.
//
// It owns what a page is made of: its fenced blocks and what their info strings
// say, its headings, links and code spans; and when an output is the one that a
// page shows. What is done with a block of a kind is left to the test that has a
// gateway to do it with.
//
// The info string of a block is its kind (sh, json, yaml, text, …) and then words
// that say what it is, as in "json DoRequest" or "text diagram". A paragraph
//
//	Save as `path`:
//
// right before a block says that the reader makes a file of it.
package docstest

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// Block is one fenced block.
type Block struct {
	Page   string // path of the page
	Line   int    // of the opening fence, from 1
	Kind   string // first word of the info string
	Words  []string
	SaveAs string // the file the reader makes of it, "" for none
	Text   string // with its last line feed
}

// Place says where the block is, as editors understand it.
func (b Block) Place() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Word says whether the info string has this word behind the kind.
func (b Block) Word(word string) bool {
	for _, w := range b.Words {
		if w == word {
			return true
		}
	}
	return false
}

// Value returns what stands behind name= in the info string, "" for none.
func (b Block) Value(name string) string {
	for _, w := range b.Words {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			return v
		}
	}
	return ""
}

// Link is one link of a page.
type Link struct {
	Line   int
	Target string
}

// Page is one Markdown file.
type Page struct {
	Path    string
	Prose   string // everything outside blocks, line for line: blocks are blank lines
	Blocks  []Block
	Anchors map[string]bool // of its headings, as they are linked
	Links   []Link
	Spans   []string // `code` within the prose
}

var (
	fence     = regexp.MustCompile("^(`{3,})([^`]*)$")
	anyFence  = regexp.MustCompile("^[ \t]*(?:>[ \t]*)?(?:```|~~~)")
	saveAs    = regexp.MustCompile("(?:^|\\s)Save as `([^`]+)`:$")
	heading   = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	link      = regexp.MustCompile(`\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)`)
	span      = regexp.MustCompile("`([^`\n]+)`")
	listEntry = regexp.MustCompile(`^ *(?:[-*+]|\d+\.) `)
)

// Parse reads a page. Anything that looks like a block and could be overlooked is
// an error: a fence that is indented, quoted, of tildes or never closed, and code
// that is only indented.
func Parse(path, source string) (Page, error) {
	p := Page{Path: path, Anchors: map[string]bool{}}
	lines := strings.Split(source, "\n")
	prose := make([]string, len(lines))
	seen := map[string]int{}
	inList := false
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if open := fence.FindStringSubmatch(line); open != nil {
			end := closing(lines, i+1, open[1])
			if end < 0 {
				return p, fmt.Errorf("%s:%d: this block is never closed", path, i+1)
			}
			b := Block{Page: path, Line: i + 1, SaveAs: fileBefore(prose[:i])}
			if words := strings.Fields(open[2]); len(words) > 0 {
				b.Kind, b.Words = words[0], words[1:]
			}
			if end > i+1 {
				b.Text = strings.Join(lines[i+1:end], "\n") + "\n"
			}
			p.Blocks = append(p.Blocks, b)
			i, inList = end, false
			continue
		}
		if anyFence.MatchString(line) {
			return p, fmt.Errorf("%s:%d: a block starts at the start of a line, with three backticks", path, i+1)
		}
		blank := strings.TrimSpace(line) == ""
		indented := strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")
		if indented && !blank && !inList && (i == 0 || strings.TrimSpace(lines[i-1]) == "") {
			return p, fmt.Errorf("%s:%d: code that is only indented is run by no test; fence it", path, i+1)
		}
		if !blank {
			inList = listEntry.MatchString(line) || inList && strings.HasPrefix(line, " ")
		}
		prose[i] = line
		if h := heading.FindStringSubmatch(line); h != nil {
			p.Anchors[unique(Slug(h[1]), seen)] = true
		}
		for _, l := range link.FindAllStringSubmatch(line, -1) {
			p.Links = append(p.Links, Link{Line: i + 1, Target: l[1]})
		}
	}
	p.Prose = strings.Join(prose, "\n")
	for _, s := range span.FindAllStringSubmatch(p.Prose, -1) {
		p.Spans = append(p.Spans, s[1])
	}
	return p, nil
}

func closing(lines []string, from int, ticks string) int {
	for i := from; i < len(lines); i++ {
		if strings.TrimRight(lines[i], " ") == ticks {
			return i
		}
	}
	return -1
}

// fileBefore reads the name of a file out of the line of prose before a block.
func fileBefore(prose []string) string {
	for i := len(prose) - 1; i >= 0 && i >= len(prose)-2; i-- {
		if m := saveAs.FindStringSubmatch(strings.TrimSpace(prose[i])); m != nil {
			return m[1]
		}
	}
	return ""
}

// Slug is the anchor of a heading, as repositories on the web make it.
func Slug(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unique(slug string, seen map[string]int) string {
	n := seen[slug]
	seen[slug]++
	if n == 0 {
		return slug
	}
	return fmt.Sprintf("%s-%d", slug, n)
}
