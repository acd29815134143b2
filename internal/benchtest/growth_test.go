package benchtest_test

import (
	"flag"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/benchtest"
)

var (
	grow     = flag.Bool("growth", false, "measure TestGrowth; otherwise it only sees that everything works")
	embedded = flag.String("growth-records", "0,1000000", "live records on the embedded store, ascending")
	onRedis  = flag.String("growth-redis", "0,1000000", "live records on Redis, ascending")
)

// TestGrowth prints the table of growth in docs/performance.md; `make bench-growth`.
func TestGrowth(t *testing.T) {
	g := &benchtest.Growth{
		Log: func(row string) { t.Log(row) }, Time: 50 * time.Millisecond, Dir: t.TempDir(), Records: []int{0, 250}, OnRedis: []int{0, 250},
		Tenants: []int{3}, Callers: []int{10}, Sizes: []int{1 << 10}, Expire: 10,
	}
	if *grow {
		g.Time, g.Records, g.OnRedis = *length, numbers(t, *embedded), numbers(t, *onRedis)
		g.Tenants, g.Callers = []int{1, 100, 10_000}, []int{1, 10, 100, 1000}
		g.Sizes, g.Expire = []int{300, 1 << 10, 30 << 10, 100 << 10, 1 << 20}, 2000
	}
	table, err := g.Run(t.Context())
	require.NoError(t, err, "%s", table)
	onRedis, err := g.Redis(t)
	require.NoError(t, err)
	t.Logf("\n%s%s", table, onRedis)
}

func numbers(t *testing.T, list string) (all []int) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		all = append(all, n)
	}
	return all
}
