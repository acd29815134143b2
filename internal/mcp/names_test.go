package mcp

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	toolForm       = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	connectionForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`) // as connections has it
	actionForm     = regexp.MustCompile(`^[a-z][a-z0-9_]{1,60}$`)     // as connectors/manifest has it
)

func TestToolNames(t *testing.T) {
	require.Equal(t, "billing__create_invoice", toolName("billing", "create_invoice"))
	require.Equal(t, "a-b_c__create__it", toolName("a-b_c", "create__it"))
	long := strings.Repeat("x", 63)
	seen := map[string]string{}
	for _, pair := range [][2]string{
		{"billing", "create_invoice"}, {"a", "b__cc"}, {"a__b", "cc"}, {"a_", "bb"}, {"a", "bb"}, {"a__bb", "bb"},
		{"a___bb", "cc"}, {"a__", "bb"}, {long, "create"}, {long, "create_other"}, {long[:30] + "__", "create"},
		{long[:57], "abcde"}, {long[:58], "abcde"}, {"x_" + long[:50], "create_invoice"},
		{"x", "_" + long[:10]},
	} {
		name := toolName(pair[0], pair[1])
		require.Regexp(t, toolForm, name, pair)
		require.Empty(t, seen[name], "%v and %v", seen[name], pair)
		seen[name] = strings.Join(pair[:], " ")
		connection, action, plain := splitName(name)
		require.NotEqual(t, plain, isCut(name), name)
		if plain {
			require.Equal(t, pair, [2]string{connection, action})
		}
	}
	require.Len(t, toolName(long, "create"), maxName)
	require.True(t, isCut(toolName(long, "create")))
	for _, name := range []string{"do", "get_action", "", "__", "a__", "__a", "a___b", "a__b__"} {
		_, _, plain := splitName(name)
		require.Equal(t, name == "a__b__", plain, name)
		require.False(t, isCut(name), name)
	}
}

// Whatever the pair, its name is one that clients take, is not another pair's, and
// leads back.
func FuzzToolNames(f *testing.F) {
	f.Add("billing", "create_invoice", "billing_", "create_invoice")
	f.Add("a__b", "cc", "a", "b__cc")
	f.Fuzz(func(t *testing.T, connection, action, connection2, action2 string) {
		for _, form := range []bool{connectionForm.MatchString(connection), connectionForm.MatchString(connection2), actionForm.MatchString(action), actionForm.MatchString(action2)} {
			if !form {
				return
			}
		}
		one, two := toolName(connection, action), toolName(connection2, action2)
		require.Regexp(t, toolForm, one)
		same := connection == connection2 && action == action2
		require.Equal(t, same, one == two)
		if c, a, plain := splitName(one); plain {
			require.Equal(t, connection+" "+action, c+" "+a)
		} else {
			require.True(t, isCut(one))
		}
	})
}
