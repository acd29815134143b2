package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOffset: an answer was dated at some time while it was waited for, and its
// date is cut to the second.
func TestOffset(t *testing.T) {
	here := time.Date(2026, 1, 2, 3, 4, 30, 0, time.UTC)
	for _, c := range []struct{ ahead, took, want time.Duration }{
		{0, 0, 0},
		{-time.Second, 0, 0},
		{-3 * time.Second, 2 * time.Second, 0},
		{-10 * time.Second, 2 * time.Second, -7 * time.Second},
		{time.Minute, 2 * time.Second, time.Minute},
	} {
		r := reading{gateway: here.Add(c.ahead), here: here, took: c.took}
		require.Equal(t, c.want, r.offset(), "%v", c)
	}
}

func TestClocks(t *testing.T) {
	here := time.Date(2026, 1, 2, 3, 4, 30, 0, time.UTC)
	for name, c := range map[string]struct {
		ahead []time.Duration
		level Level
		words string
	}{
		"none":                {nil, NotShown, "no answer"},
		"fine":                {[]time.Duration{0, -time.Second, 2 * time.Second}, OK, "3 answers"},
		"one replica is fast": {[]time.Duration{0, time.Minute}, Warning, "1m0s apart"},
		"this one is":         {[]time.Duration{-time.Minute, -time.Minute}, Warning, "59s apart"},
	} {
		t.Run(name, func(t *testing.T) {
			x := &examination{report: &Report{}}
			for _, ahead := range c.ahead {
				x.clocks = append(x.clocks, reading{gateway: here.Add(ahead), here: here})
			}
			x.clock()
			require.Len(t, x.report.Findings, 1)
			require.Equal(t, c.level, x.report.Findings[0].Level)
			require.Contains(t, x.report.Findings[0].Found, c.words)
		})
	}
}

func TestSum(t *testing.T) {
	const text = "# TYPE m counter\nm{a=\"1\",route=\"/v1/do\"} 2\nm{a=\"2\",route=\"/v1/do\"} 3e1\nm{route=\"/x\"} 9\nmore{route=\"/v1/do\"} 9\n"
	require.InDelta(t, 32, sum([]byte(text), "m", `route="/v1/do"`), 0)
}
