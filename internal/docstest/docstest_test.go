package docstest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/docstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ticks writes a page with ' for the backtick, which Go's raw strings cannot hold.
func ticks(s string) string { return strings.ReplaceAll(s, "'", "`") }

func TestParse(t *testing.T) {
	page, err := docstest.Parse("docs/a.md", ticks(`# Title, with 'code'
See [there](b.md#part) and ['x'](https://example.com/y).

'''sh terminal
gateway serve
'''

## Title, with code

- an entry

    goes on, indented

Save as 'x/y.yaml':

'''yaml connector file=z
a: 1
'''

'''text
'''
`))
	require.NoError(t, err)
	require.Equal(t, []docstest.Block{
		{Page: "docs/a.md", Line: 4, Kind: "sh", Words: []string{"terminal"}, Text: "gateway serve\n"},
		{Page: "docs/a.md", Line: 16, Kind: "yaml", Words: []string{"connector", "file=z"}, SaveAs: "x/y.yaml", Text: "a: 1\n"},
		{Page: "docs/a.md", Line: 20, Kind: "text", Words: []string{}},
	}, page.Blocks)
	require.Equal(t, "docs/a.md:4", page.Blocks[0].Place())
	require.True(t, page.Blocks[0].Word("terminal"))
	require.False(t, page.Blocks[1].Word("terminal"))
	require.Equal(t, "z", page.Blocks[1].Value("file"))
	require.Empty(t, page.Blocks[0].Value("file"))
	require.Equal(t, map[string]bool{"title-with-code": true, "title-with-code-1": true}, page.Anchors)
	require.Equal(t, []docstest.Link{{Line: 2, Target: "b.md#part"}, {Line: 2, Target: "https://example.com/y"}}, page.Links)
	require.Equal(t, []string{"code", "x", "x/y.yaml"}, page.Spans)
	require.NotContains(t, page.Prose, "gateway serve")
}

// What could be overlooked is an error.
func TestParseRefuses(t *testing.T) {
	for name, source := range map[string]string{
		"never closed":            "'''sh\nls\n",
		"closed by fewer ticks":   "''''sh\nls\n'''\n",
		"indented fence":          "- x\n\n  '''sh\n  ls\n  '''\n",
		"quoted fence":            "> '''sh\n> ls\n> '''\n",
		"tildes":                  "~~~sh\nls\n~~~\n",
		"indented code":           "Run this:\n\n    ls -l\n",
		"indented code, tab":      "Run this:\n\n\tls -l\n",
		"indented code, at start": "    ls -l\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := docstest.Parse("a.md", ticks(source))
			require.Error(t, err)
		})
	}
}

func TestMatches(t *testing.T) {
	for _, row := range []struct {
		name, shown, got string
		ok               bool
	}{
		{"same", "a\nb\n", "a\nb", true},
		{"blanks at ends", "a", "a  \n\n", true},
		{"nothing", "", "\n", true},
		{"other", "a", "b", false},
		{"more lines", "a", "a\nb", false},
		{"fewer lines", "a\nb", "a", false},
		{"nothing shown", "", "a", false},
		{"part of a line", "id act_… done", "id act_01K done", true},
		{"part of a line differs", "id act_… done", "id act_01K failed", false},
		{"part of a line is all of it", "inv_…", "inv_", true},
		{"parts do not overlap", "aba…aba", "ababa", false},
		{"parts in order", "…b…a…", "ab", false},
		{"parts in order, twice", "…b…a…", "abba", true},
		{"no pattern", "a.c", "abc", false},
		{"any lines between", "a\n…\nd", "a\nb\nc\nd", true},
		{"no lines between", "a\n…\nd", "a\nd", true},
		{"any lines at the end", "a\n…", "a\nb\nc", true},
		{"any lines, then what is missing", "a\n…\nx", "a\nb\nc", false},
		{"two ways to read it", "…\na\n…\na\nb", "a\na\na\nb", true},
		{"a line is not two", "a…b", "a\nb", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			err := docstest.Matches(row.shown, row.got)
			require.Equal(t, row.ok, err == nil, "%v", err)
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(ticks("# a\n\n'''sh\nls\n'''\n[x](y)\n"))
	f.Add("    x\n\t~~~")
	f.Fuzz(func(t *testing.T, source string) {
		page, err := docstest.Parse("a.md", source)
		if err != nil {
			return
		}
		for _, b := range page.Blocks {
			require.Contains(t, "\n"+source, b.Text)
		}
	})
}

func FuzzMatches(f *testing.F) {
	f.Add("a\n…\nb…c", "a\nx\nbyc")
	f.Fuzz(func(t *testing.T, shown, got string) {
		_ = docstest.Matches(shown, got)
		if !strings.Contains(got, "…") {
			require.NoError(t, docstest.Matches(got, got))
		}
	})
}
