package main

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/docstest"
)

// What pages name must be there, and what is there must be named.

// TestDocsLinks: every link within the project leads to a file, and to a heading
// where it names one.
func TestDocsLinks(t *testing.T) {
	pages := map[string]docstest.Page{}
	for _, p := range docPages(t) {
		pages[p.Path] = p
	}
	for _, p := range pages {
		for _, l := range p.Links {
			target, anchor, _ := strings.Cut(l.Target, "#")
			if u, err := url.Parse(l.Target); err != nil || u.IsAbs() {
				require.NoError(t, err, "%s:%d", p.Path, l.Line)
				continue
			}
			to := p.Path
			if target != "" {
				to = path.Join(path.Dir(p.Path), target)
			}
			_, err := os.Stat(filepath.Join(root, filepath.FromSlash(to)))
			if err != nil {
				t.Errorf("%s:%d: there is no %s", p.Path, l.Line, to)
			} else if anchor != "" && !pages[to].Anchors[anchor] {
				t.Errorf("%s:%d: %s has no heading #%s", p.Path, l.Line, to, anchor)
			}
		}
	}
}

// TestDocsAreFound: every page is linked from the README or from the list for
// agents, docs/llms.txt, which has all of docs.
func TestDocsAreFound(t *testing.T) {
	linked := map[string]map[string]bool{}
	for _, p := range docPages(t) {
		linked[p.Path] = map[string]bool{}
		for _, l := range p.Links {
			target, _, _ := strings.Cut(l.Target, "#")
			linked[p.Path][path.Join(path.Dir(p.Path), target)] = true
		}
	}
	for name := range linked {
		if path.Dir(name) == "docs" && name != "docs/llms.txt" {
			require.True(t, linked["README.md"][name], "README.md does not link to %s", name)
			require.True(t, linked["docs/llms.txt"][name], "docs/llms.txt does not link to %s", name)
		}
	}
}

var (
	settingSpelling = regexp.MustCompile(`\bGATEWAY_[A-Z_]*[A-Z]`)
	metricSpelling  = regexp.MustCompile(`\bholdfast_[a-z_]*[a-z]`)
	commandSpelling = regexp.MustCompile(`(?:^|[\s(/])gateway((?: [a-z][a-z-]*(?:\|[a-z][a-z-]*)*)+)`)
	flagSpelling    = regexp.MustCompile(`--[a-z][a-z-]+`)
)

// whole is a page with its blocks, as a reader sees it.
func whole(p docstest.Page) string {
	text := p.Prose
	for _, b := range p.Blocks {
		text += "\n" + b.Text
	}
	return text
}

func TestDocsSettings(t *testing.T) {
	real := clientSettings()
	for _, s := range settings() {
		real = append(real, s.env())
	}
	real = append(real, "GATEWAY_PATIENCE") // of the clients in examples/
	named := map[string]bool{}
	for _, p := range docPages(t) {
		text := whole(p)
		for _, at := range settingSpelling.FindAllStringIndex(text, -1) {
			name := text[at[0]:at[1]]
			named[p.Path+" "+name] = true
			if strings.HasPrefix(text[at[1]:], "_…") || p.Path == "CHANGELOG.md" {
				require.True(t, slices.ContainsFunc(real, func(s string) bool { return strings.HasPrefix(s, name) }), "%s: no setting begins with %s", p.Path, name)
				continue
			}
			require.Contains(t, real, name, p.Path)
		}
	}
	for _, s := range settings() {
		require.True(t, named["README.md "+s.env()], "README.md does not list %s", s.env())
	}
}

// TestDocsMetrics: a page names no metric that a gateway does not have.
func TestDocsMetrics(t *testing.T) {
	app, _ := boot(t, embeddedConfig(t))
	scrape := metricsOf(t, app)
	for _, p := range docPages(t) {
		for _, name := range metricSpelling.FindAllString(whole(p), -1) {
			if name != toolName {
				require.Contains(t, scrape, name, p.Path)
			}
		}
	}
}

// TestDocsCommands: every command and flag that a page names is there, and every
// command is in the list of docs/operations.md.
func TestDocsCommands(t *testing.T) {
	for _, p := range docPages(t) {
		lines := append([]string{}, p.Spans...)
		for _, b := range p.Blocks {
			if b.Kind == "sh" {
				lines = append(lines, strings.Split(strings.ReplaceAll(b.Text, "\\\n", " "), "\n")...)
			}
		}
		for _, line := range lines {
			checkCommandLine(t, p.Path, line)
		}
	}
	var operations docstest.Page
	for _, p := range docPages(t) {
		if p.Path == "docs/operations.md" {
			operations = p
		}
	}
	for _, leaf := range leaves(command()) {
		found := slices.ContainsFunc(operations.Spans, func(s string) bool { return s == leaf || strings.HasPrefix(s, leaf+" ") })
		require.True(t, found, "docs/operations.md does not list %s", leaf)
	}
}

func checkCommandLine(t *testing.T, page, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " # ")
	for _, m := range commandSpelling.FindAllStringSubmatchIndex(line, -1) {
		words := strings.Fields(line[m[2]:m[3]])
		rest, _, _ := strings.Cut(line[m[3]:], "|")
		for _, spelled := range alternatives(words) {
			cmd := descend(command(), spelled)
			require.NotNil(t, cmd, "%s: there is no command %q", page, line)
			for _, flag := range flagSpelling.FindAllString(rest, -1) {
				name := strings.TrimPrefix(flag, "--")
				require.True(t, cmd.Flag(name) != nil || name == "help",
					"%s: %s has no flag %s", page, cmd.CommandPath(), flag)
			}
		}
	}
}

// alternatives spells out "held list|show".
func alternatives(words []string) [][]string {
	lists := [][]string{nil}
	for _, word := range words {
		var next [][]string
		for _, list := range lists {
			for one := range strings.SplitSeq(word, "|") {
				next = append(next, append(slices.Clone(list), one))
			}
		}
		lists = next
	}
	return lists
}

// descend follows words as far as commands are made of them; what is left are
// arguments, of a command that takes some. nil: there is no such command.
func descend(cmd *cobra.Command, words []string) *cobra.Command {
	for _, word := range words {
		i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word })
		switch {
		case i >= 0:
			cmd = cmd.Commands()[i]
		case cmd.HasSubCommands():
			return nil
		default:
			return cmd
		}
	}
	return cmd
}

func leaves(cmd *cobra.Command) []string {
	if !cmd.HasSubCommands() {
		return []string{cmd.CommandPath()}
	}
	var list []string
	for _, c := range cmd.Commands() {
		list = append(list, leaves(c)...)
	}
	return list
}

// TestDocsNamesAreChecked: what is wrong is found.
func TestDocsNamesAreChecked(t *testing.T) {
	require.Nil(t, descend(command(), []string{"bake"}))
	require.Nil(t, descend(command(), []string{"held", "bake"}))
	require.Equal(t, "gateway held list", descend(command(), []string{"held", "list"}).CommandPath())
	require.Equal(t, [][]string{{"held", "list"}, {"held", "show"}}, alternatives([]string{"held", "list|show"}))
	require.Equal(t, " held list|show", commandSpelling.FindStringSubmatch(".bin/gateway held list|show ID")[1])
	require.Nil(t, commandSpelling.FindStringSubmatch("the gateway's held writes"))
}
