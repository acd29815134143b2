package ledgertest

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// expiryCases: the instant named by Expires is the first at which a value does
// not exist, for anybody.
func expiryCases() []testCase {
	k := key("a")
	expiring := func(data string, at time.Time) ledger.Put {
		return ledger.Put{Key: k, Data: []byte(data), Expires: at}
	}
	return []testCase{
		{"a value is read until its instant and not from then on", func(f *fixture) {
			end := f.second(time.Minute)
			f.must(ledger.Step{Put: []ledger.Put{expiring("one", end)}})
			f.holds(k, "one")
			f.around(end, func() time.Time {
				snap := f.read(ledger.Fetch{Key: k})
				_, ok := snap.Get(k)
				require.Equal(f, snap.Now.Before(end), ok, "%s of %s", snap.Now, end)
				return snap.Now
			})
		}},
		{"a condition sees an expired value as absent", func(f *fixture) {
			end := f.second(time.Minute)
			n := f.must(ledger.Step{Put: []ledger.Put{expiring("one", end)}})
			f.around(end, func() time.Time {
				res := f.apply(ledger.Step{Expect: []ledger.Expect{at(k, n)}})
				require.Equal(f, res.Now.Before(end), res.Applied)
				return res.Now
			})
			f.must(ledger.Step{Expect: []ledger.Expect{absent(k)}, Put: []ledger.Put{put(k, "two")}})
			f.holds(k, "two")
		}},
		{"a refused step does not return an expired value", func(f *fixture) {
			end := f.second(time.Minute)
			f.must(ledger.Step{Put: []ledger.Put{expiring("one", end), put(key("b"), "stays")}})
			f.around(end, func() time.Time {
				res := f.refused(ledger.Step{Expect: []ledger.Expect{absent(key("b"))}, Fetch: fetch(k, key("b"))})
				_, ok := res.Get(k)
				require.Equal(f, res.Now.Before(end), ok)
				_, ok = res.Get(key("b"))
				require.True(f, ok)
				return res.Now
			})
		}},
		{"a value without expiry stays", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.advance(365 * 24 * time.Hour)
			f.holds(k, "one")
		}},
		{"a later put moves the instant", func(f *fixture) {
			soon, later := f.second(time.Minute), f.second(time.Hour)
			f.must(ledger.Step{Put: []ledger.Put{expiring("one", soon)}})
			f.must(ledger.Step{Put: []ledger.Put{expiring("two", later)}})
			f.advance(2 * time.Minute)
			f.holds(k, "two")
			f.advance(time.Hour)
			f.lacks(k)
		}},
		{"a later put without expiry takes it away", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{expiring("one", f.second(time.Minute))}})
			f.must(ledger.Step{Put: []ledger.Put{put(k, "two")}})
			f.advance(time.Hour)
			f.holds(k, "two")
		}},
		{"a later put may bring the instant nearer", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.must(ledger.Step{Put: []ledger.Put{expiring("two", f.second(time.Minute))}})
			f.advance(2 * time.Minute)
			f.lacks(k)
		}},
		{"a value put with a past instant does not exist", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{expiring("one", f.now().Add(-time.Hour).Truncate(time.Second))}})
			f.lacks(k)
			f.must(ledger.Step{Expect: []ledger.Expect{absent(k)}})
		}},
		{"a value that is followed to expires too", func(f *fixture) {
			target := strings.Repeat("t", 16)
			end := f.second(time.Minute)
			f.must(ledger.Step{Put: []ledger.Put{
				put(ledger.Key{Kind: ledger.Binding, ID: "b"}, target),
				{Key: ledger.Key{Kind: ledger.Action, ID: target}, Data: []byte("record"), Expires: end},
			}})
			f.around(end, func() time.Time {
				snap := f.read(ledger.Fetch{
					Key: ledger.Key{Kind: ledger.Binding, ID: "b"}, Follow: []ledger.Kind{ledger.Action},
				})
				_, ok := snap.Get(ledger.Key{Kind: ledger.Action, ID: target})
				require.Equal(f, snap.Now.Before(end), ok)
				return snap.Now
			})
		}},
		{"an expired counter starts at zero again", func(f *fixture) {
			end := f.second(time.Minute)
			n := counter("n")
			want := int64(0)
			f.around(end, func() time.Time {
				res := f.apply(ledger.Step{Add: []ledger.Add{{Key: n, Delta: 1, Expires: end}}})
				require.True(f, res.Applied)
				if want++; !res.Now.Before(end) {
					want = 1
				}
				require.Equal(f, []int64{want}, res.Counters)
				return res.Now
			})
			f.lacks(n)
		}},
		{"a later add moves the instant of a counter", func(f *fixture) {
			n := counter("n")
			f.must(ledger.Step{Add: []ledger.Add{{Key: n, Delta: 1, Expires: f.second(time.Minute)}}})
			f.must(ledger.Step{Add: []ledger.Add{{Key: n, Delta: 1, Expires: f.second(time.Hour)}}})
			f.advance(2 * time.Minute)
			f.holds(n, "2")
			f.advance(time.Hour)
			f.lacks(n)
		}},
		{"expiry survives reopening", func(f *fixture) {
			end := f.second(time.Minute)
			f.must(ledger.Step{Put: []ledger.Put{expiring("one", end)}})
			f.Store = f.Reopen(f.T)
			f.holds(k, "one")
			f.advance(2 * time.Minute)
			f.lacks(k)
		}},
	}
}

// followCases: a value and what it points to, out of one instant.
func followCases() []testCase {
	one, two, three := strings.Repeat("1", 16), strings.Repeat("\xff", 16), strings.Repeat("\x00", 16)
	record := func(id string) ledger.Key { return ledger.Key{Kind: ledger.Action, ID: id} }
	answer := func(id string) ledger.Key { return ledger.Key{Kind: ledger.Answer, ID: id} }
	follow := func(k ledger.Key) ledger.Fetch {
		return ledger.Fetch{Key: k, Follow: []ledger.Kind{ledger.Action, ledger.Answer}}
	}
	bound := ledger.Key{Kind: ledger.Twins, ID: "f"}
	found := func(f *fixture, snap ledger.Snapshot, want ...ledger.Key) {
		f.Helper()
		got := []ledger.Key{}
		for k := range snap.Values {
			got = append(got, k)
		}
		require.ElementsMatch(f, want, got)
	}
	return []testCase{
		{"every id and every kind is read", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{
				put(bound, one+two), put(record(one), "r1"), put(answer(one), "a1"),
				put(record(two), "r2"), put(answer(two), "a2"), put(record(three), "not named"),
			}})
			snap := f.read(follow(bound))
			found(f, snap, bound, record(one), answer(one), record(two), answer(two))
			v, _ := snap.Get(answer(two))
			require.Equal(f, "a2", string(v.Data))
		}},
		{"targets that do not exist are left out", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(bound, one+three+two), put(record(two), "r2")}})
			found(f, f.read(follow(bound)), bound, record(two))
		}},
		{"nothing is followed from what does not exist", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(record(one), "r1")}})
			found(f, f.read(follow(bound)))
		}},
		{"data that is no sequence of ids is not followed", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(record(one), "r1"), put(answer(one), "a1")}})
			for _, data := range []string{"", "1", one[:15], one + "1", one + one[:15]} {
				f.must(ledger.Step{Put: []ledger.Put{put(bound, data)}})
				found(f, f.read(follow(bound)), bound)
			}
		}},
		{"the same target named twice is read once", func(f *fixture) {
			other := ledger.Key{Kind: ledger.Binding, ID: "b"}
			f.must(ledger.Step{Put: []ledger.Put{put(bound, one+one), put(other, one), put(record(one), "r1")}})
			found(f, f.read(follow(bound), follow(other), ledger.Fetch{Key: record(one)}), bound, other, record(one))
		}},
		{"a counter is read among what is followed", func(f *fixture) {
			replays := ledger.Key{Kind: ledger.Replays, ID: one}
			f.must(ledger.Step{Put: []ledger.Put{put(bound, one)}, Add: []ledger.Add{{Key: replays, Delta: 3}}})
			snap := f.read(ledger.Fetch{Key: bound, Follow: []ledger.Kind{ledger.Replays}})
			v, ok := snap.Get(replays)
			require.True(f, ok)
			require.Equal(f, "3", string(v.Data))
		}},
		{"a refused step follows too", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(bound, one), put(record(one), "r1")}})
			res := f.refused(ledger.Step{Expect: []ledger.Expect{absent(bound)}, Fetch: []ledger.Fetch{follow(bound)}})
			found(f, res.Snapshot, bound, record(one))
		}},
	}
}
