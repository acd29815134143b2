package api

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
)

// The operations guide says which status each code comes with.
func TestTheOperationsGuideHasTheRightStatuses(t *testing.T) {
	raw, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	named := regexp.MustCompile("([45][0-9]{2}) `([a-z_]+)`").FindAllStringSubmatch(string(raw), -1)
	require.Greater(t, len(named), 8)
	for _, m := range named {
		kind, ok := kinds[actions.Code(m[2])]
		require.True(t, ok, m[2])
		require.Equal(t, strconv.Itoa(kind.status), m[1], m[2])
	}
}
