package benchtest

import "testing"

// Against holds the gateway against another build of it, an older one say: the
// quickest way to see what a change is worth.
func Against(other string) []Entry {
	const callers = 64
	writes := func(t testing.TB, b *Bench) Contest {
		r := newRig(t, b)
		ours := embedded(t, b.Program, r.vendor.addr)
		theirs := embedded(t, other, r.vendor.addr)
		r.close = append(r.close, ours.close, theirs.close)
		return Contest{
			Name: "do of two builds", Close: r.end,
			Contestants: []Contestant{
				{"ours", r.round(ours.fresh(), callers)}, {"other", r.round(theirs.fresh(), callers)},
				{"ours, alone", r.round(ours.fresh(), 1)}, {"other, alone", r.round(theirs.fresh(), 1)},
			},
			Figures: []Figure{
				{Name: "`do` ÷ the other build's, 64 callers, embedded", Unit: "/s", Of: Ratio("ours", "other", "rate")},
				{Name: "– their CPU", Unit: "µs", Of: Ratio("ours", "other", "cpu_us")},
				{Name: "one lone `do` ÷ the other build's, medians", Unit: "ms", Of: Ratio("ours, alone", "other, alone", "p50_ms")},
				{Name: "– their CPU", Unit: "µs", Of: Ratio("ours, alone", "other, alone", "cpu_us")},
			},
		}
	}
	replays := func(t testing.TB, b *Bench) Contest {
		r := newRig(t, b)
		ours := embedded(t, b.Program, r.vendor.addr)
		theirs := embedded(t, other, r.vendor.addr)
		r.close = append(r.close, ours.close, theirs.close)
		r.fill(t, ours)
		r.fill(t, theirs)
		return Contest{
			Name: "replay of two builds", Close: r.end,
			Contestants: []Contestant{
				{"ours", r.round(r.repeats(ours), callers)}, {"other", r.round(r.repeats(theirs), callers)},
			},
			Figures: []Figure{
				{Name: "replay ÷ the other build's, 64 callers, embedded", Unit: "/s", Of: Ratio("ours", "other", "rate")},
				{Name: "– their CPU", Unit: "µs", Of: Ratio("ours", "other", "cpu_us")},
			},
		}
	}
	return []Entry{{"do of two builds", writes}, {"replay of two builds", replays}}
}
