package ledgertest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// indexCases: members stand, move and leave.
func indexCases() []testCase {
	lease := ledger.EntryRange{Index: ledger.ByLease}
	entry := func(at time.Time, member string) ledger.Entry {
		return ledger.Entry{Index: ledger.ByLease, Score: at, Member: member}
	}
	return []testCase{
		{"an entry comes back with its score", func(f *fixture) {
			score := f.now().Add(1234 * time.Millisecond)
			f.must(ledger.Step{Index: []ledger.Entry{entry(score, "m")}})
			got := f.entryList(lease)
			require.Len(f, got, 1)
			require.Equal(f, "m", got[0].Member)
			require.True(f, score.Equal(got[0].Score))
		}},
		{"an index without entries is empty", func(f *fixture) {
			require.Empty(f, f.entries(lease))
		}},
		{"an unindexed entry is gone", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{entry(now, "a"), entry(now, "b")}})
			f.must(ledger.Step{Unindex: []ledger.Entry{entry(now, "a")}})
			require.Equal(f, []string{"b"}, f.entries(lease))
		}},
		{"unindexing what does not stand is no fault", func(f *fixture) {
			f.must(ledger.Step{Unindex: []ledger.Entry{entry(f.now(), "a")}})
			require.Empty(f, f.entries(lease))
		}},
		{"an entry moves by unindex and index in one step", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{entry(now, "a"), entry(now.Add(time.Second), "b")}})
			f.must(ledger.Step{
				Unindex: []ledger.Entry{entry(now, "a")},
				Index:   []ledger.Entry{entry(now.Add(2*time.Second), "a")},
			})
			require.Equal(f, []string{"b", "a"}, f.entries(lease))
		}},
		{"indexing an entry that stands changes nothing", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{entry(now, "a"), entry(now, "a")}})
			f.must(ledger.Step{Index: []ledger.Entry{entry(now, "a")}})
			require.Equal(f, []string{"a"}, f.entries(lease))
			f.must(ledger.Step{Unindex: []ledger.Entry{entry(now, "a")}})
			require.Empty(f, f.entries(lease))
		}},
		{"an entry moves and moves again, and is nowhere else", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{entry(now, "a")}})
			for i := range 5 {
				at := now.Add(time.Duration(i) * time.Second)
				f.must(ledger.Step{
					Unindex: []ledger.Entry{entry(at, "a")},
					Index:   []ledger.Entry{entry(at.Add(time.Second), "a")},
				})
				got := f.entryList(lease)
				require.Len(f, got, 1)
				require.True(f, at.Add(time.Second).Equal(got[0].Score))
			}
		}},
		{"scores differ by whole milliseconds", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{entry(now.Add(999*time.Microsecond), "a")}})
			f.must(ledger.Step{Unindex: []ledger.Entry{entry(now, "a")}})
			require.Empty(f, f.entries(lease))
		}},
		// A driver may take the member from its first score, or leave it there too.
		{"a member at a second score stands there, and is gone when it is unindexed from both", func(f *fixture) {
			now := f.now()
			first, second := entry(now, "a"), entry(now.Add(time.Second), "a")
			f.must(ledger.Step{Index: []ledger.Entry{first}})
			f.must(ledger.Step{Index: []ledger.Entry{second}})
			require.Equal(f, []string{"a"}, f.entries(ledger.EntryRange{Index: ledger.ByLease, From: second.Score}))
			f.must(ledger.Step{Unindex: []ledger.Entry{first, second}})
			require.Empty(f, f.entries(lease))

			f.must(ledger.Step{Index: []ledger.Entry{first, second}})
			require.Equal(f, []string{"a"}, f.entries(ledger.EntryRange{Index: ledger.ByLease, From: second.Score}))
			require.NoError(f, f.Store.Trim(f.Context(), f.scope, ledger.ByLease, second.Score))
			require.Equal(f, []string{"a"}, f.entries(lease))
		}},
		{"what is unindexed at another score can be indexed in the same step", func(f *fixture) {
			now := f.now()
			stands, wrong := entry(now, "a"), entry(now.Add(time.Second), "a")
			f.must(ledger.Step{Index: []ledger.Entry{stands}})
			f.must(ledger.Step{Unindex: []ledger.Entry{wrong}, Index: []ledger.Entry{stands}})
			got := f.entryList(lease)
			require.Len(f, got, 1)
			require.True(f, now.Equal(got[0].Score))
		}},
		{"indexes do not mix", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{
				entry(now, "m"), {Index: ledger.ByHold, Score: now.Add(time.Second), Member: "m"},
			}})
			f.must(ledger.Step{Unindex: []ledger.Entry{entry(now, "m")}})
			require.Empty(f, f.entries(lease))
			require.Equal(f, []string{"m"}, f.entries(ledger.EntryRange{Index: ledger.ByHold}))
		}},
		{"trim removes the entries before a time", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{
				entry(now.Add(-time.Millisecond), "old"), entry(now.Add(-time.Hour), "older"),
				entry(now, "same"), entry(now.Add(time.Millisecond), "new"),
				{Index: ledger.ByHold, Score: now.Add(-time.Hour), Member: "other index"},
			}})
			require.NoError(f, f.Store.Trim(f.Context(), f.scope, ledger.ByLease, now))
			require.Equal(f, []string{"same", "new"}, f.entries(lease))
			require.Equal(f, []string{"other index"}, f.entries(ledger.EntryRange{Index: ledger.ByHold}))
		}},
		{"trim of an empty index is no fault", func(f *fixture) {
			require.NoError(f, f.Store.Trim(f.Context(), f.scope, ledger.ByLease, f.now()))
		}},
		{"trim removes any number of entries", func(f *fixture) {
			now := f.now()
			for i := range 3 {
				var s ledger.Step
				for _, m := range numbered(fmt.Sprint(i, "-"), 700) {
					s.Index = append(s.Index, entry(now.Add(-time.Second), m))
				}
				f.must(s)
			}
			require.NoError(f, f.Store.Trim(f.Context(), f.scope, ledger.ByLease, now))
			require.Empty(f, f.entries(lease))
		}},
		{"a trimmed member can be indexed again", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{entry(now.Add(-time.Second), "m")}})
			require.NoError(f, f.Store.Trim(f.Context(), f.scope, ledger.ByLease, now))
			f.must(ledger.Step{Index: []ledger.Entry{entry(now, "m")}})
			require.Equal(f, []string{"m"}, f.entries(lease))
		}},
		{"trim keeps its own scope", func(f *fixture) {
			now := f.now()
			f.must(ledger.Step{Index: []ledger.Entry{entry(now.Add(-time.Second), "m")}})
			require.NoError(f, f.Store.Trim(f.Context(), freshScope(), ledger.ByLease, now))
			require.Equal(f, []string{"m"}, f.entries(lease))
		}},
	}
}

// rangeCases: five entries, a to e, a second apart from base on, with c1 and c2
// sharing the third score.
func rangeCases() []testCase {
	type ranged struct {
		fixture *fixture
		base    time.Time
	}
	with := func(run func(r ranged)) func(*fixture) {
		return func(f *fixture) {
			base := f.now()
			var s ledger.Step
			for member, sec := range map[string]int{"a": 0, "b": 1, "c1": 2, "c2": 2, "d": 3, "e": 4} {
				s.Index = append(s.Index, ledger.Entry{
					Index: ledger.ByCreated, Score: base.Add(time.Duration(sec) * time.Second), Member: member,
				})
			}
			f.must(s)
			run(ranged{f, base})
		}
	}
	list := func(r ranged, from, to int, mod ...func(*ledger.EntryRange)) []string {
		r.fixture.Helper()
		er := ledger.EntryRange{Index: ledger.ByCreated}
		if from >= 0 {
			er.From = r.base.Add(time.Duration(from) * time.Second)
		}
		if to >= 0 {
			er.To = r.base.Add(time.Duration(to) * time.Second)
		}
		for _, m := range mod {
			m(&er)
		}
		return r.fixture.entries(er)
	}
	newest := func(er *ledger.EntryRange) { er.Newest = true }
	limit := func(n int) func(*ledger.EntryRange) { return func(er *ledger.EntryRange) { er.Limit = n } }
	after := func(r ranged, sec int, member string) func(*ledger.EntryRange) {
		return func(er *ledger.EntryRange) {
			er.After = &ledger.Entry{
				Index: ledger.ByCreated, Score: r.base.Add(time.Duration(sec) * time.Second), Member: member,
			}
		}
	}
	all := []string{"a", "b", "c1", "c2", "d", "e"}
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	eq := func(r ranged, want, got []string) { r.fixture.Helper(); require.Equal(r.fixture, want, got) }

	return []testCase{
		{"everything, in order of score and member", with(func(r ranged) {
			eq(r, all, list(r, -1, -1))
		})},
		{"newest first is exactly the reverse", with(func(r ranged) {
			eq(r, reversed, list(r, -1, -1, newest))
		})},
		{"from is included, to is not", with(func(r ranged) {
			eq(r, []string{"b", "c1", "c2"}, list(r, 1, 3))
			eq(r, []string{"c2", "c1", "b"}, list(r, 1, 3, newest))
			eq(r, []string{"d", "e"}, list(r, 3, -1))
			eq(r, []string{"a"}, list(r, -1, 1))
			eq(r, []string{}, list(r, 2, 2))
			eq(r, []string{}, list(r, 3, 1))
		})},
		{"limit cuts in the direction of reading", with(func(r ranged) {
			eq(r, []string{"a", "b"}, list(r, -1, -1, limit(2)))
			eq(r, []string{"e", "d"}, list(r, -1, -1, limit(2), newest))
			eq(r, []string{"c1"}, list(r, 2, -1, limit(1)))
			eq(r, []string{"c2"}, list(r, -1, 3, limit(1), newest))
		})},
		{"after continues behind an entry", with(func(r ranged) {
			eq(r, []string{"c1", "c2", "d", "e"}, list(r, -1, -1, after(r, 1, "b")))
			eq(r, []string{"a"}, list(r, -1, -1, after(r, 1, "b"), newest))
			eq(r, []string{"c2", "d"}, list(r, -1, 4, after(r, 2, "c1")))
			eq(r, []string{"c1", "b"}, list(r, 1, -1, after(r, 2, "c2"), newest))
			eq(r, []string{}, list(r, -1, -1, after(r, 4, "e")))
			eq(r, []string{}, list(r, -1, -1, after(r, 0, "a"), newest))
		})},
		{"after need not stand any more", with(func(r ranged) {
			gone := ledger.Entry{Index: ledger.ByCreated, Score: r.base.Add(2 * time.Second), Member: "c1"}
			r.fixture.must(ledger.Step{Unindex: []ledger.Entry{gone}})
			eq(r, []string{"c2", "d", "e"}, list(r, -1, -1, after(r, 2, "c1")))
			eq(r, []string{"b", "a"}, list(r, -1, -1, after(r, 2, "c1"), newest))
		})},
		{"after outside the bounds does not widen them", with(func(r ranged) {
			eq(r, []string{"b", "c1", "c2"}, list(r, 1, 3, after(r, 0, "a")))
			eq(r, []string{"c2", "c1", "b"}, list(r, 1, 3, after(r, 4, "e"), newest))
			eq(r, []string{}, list(r, 1, 3, after(r, 4, "e")))
			eq(r, []string{}, list(r, 1, 3, after(r, 0, "a"), newest))
		})},
		{"pages join without gap or repeat", with(func(r ranged) {
			for _, dir := range []bool{false, true} {
				var got []string
				er := ledger.EntryRange{Index: ledger.ByCreated, Newest: dir, Limit: 1}
				for page := r.fixture.entryList(er); len(page) > 0; page = r.fixture.entryList(er) {
					got = append(got, page[0].Member)
					er.After = &page[0]
				}
				if dir {
					eq(r, reversed, got)
				} else {
					eq(r, all, got)
				}
			}
		})},
		{"equal scores are ordered by the bytes of the member", func(f *fixture) {
			members := awkwardIDs()
			slices.Sort(members)
			now := f.now()
			var s ledger.Step
			for _, m := range members {
				s.Index = append(s.Index, ledger.Entry{Index: ledger.ByName, Score: now, Member: m})
			}
			f.must(s)
			require.Equal(f, members, f.entries(ledger.EntryRange{Index: ledger.ByName}))
			for i, m := range members {
				e := &ledger.Entry{Index: ledger.ByName, Score: now, Member: m}
				require.Equal(f, members[i+1:], f.entries(ledger.EntryRange{Index: ledger.ByName, After: e}))
				require.Len(f, f.entries(ledger.EntryRange{Index: ledger.ByName, After: e, Newest: true}), i)
			}
		}},
		{"scores are ordered as times far apart", func(f *fixture) {
			times := []time.Time{
				time.UnixMilli(-1), time.UnixMilli(0), time.UnixMilli(1),
				time.Date(2001, 9, 9, 1, 46, 39, 999e6, time.UTC), time.Date(2001, 9, 9, 1, 46, 40, 0, time.UTC),
				time.Date(2286, 11, 20, 17, 46, 40, 1e6, time.UTC),
			}
			var s ledger.Step
			for i, at := range slices.Backward(times) {
				s.Index = append(s.Index, ledger.Entry{Index: ledger.ByCreated, Score: at, Member: fmt.Sprint(i)})
			}
			f.must(s)
			got := f.entryList(ledger.EntryRange{Index: ledger.ByCreated})
			require.Len(f, got, len(times))
			for i := range times {
				require.Equal(f, fmt.Sprint(i), got[i].Member)
				require.True(f, times[i].Equal(got[i].Score), "%v and %v", times[i], got[i].Score)
			}
		}},
		{"a range without a limit is an error", with(func(r ranged) {
			for _, n := range []int{0, -1} {
				_, err := r.fixture.Store.Entries(r.fixture.Context(), r.fixture.scope,
					ledger.EntryRange{Index: ledger.ByCreated, Limit: n})
				require.Error(r.fixture, err)
			}
		})},
	}
}
