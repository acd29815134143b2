package usage_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/usage"
)

var acme = ledger.ScopeOf("acme")

// clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func openStore(t require.TestingT) (ledger.Store, *clock) {
	c := &clock{now: noon}
	s, err := pebblestore.Open("store", pebblestore.Options{Clock: c.Now, FS: vfs.NewMem()})
	require.NoError(t, err)
	return s, c
}

func appendRows(t require.TestingT, store ledger.Store, scope ledger.Scope, rows ...audit.Row) {
	step := ledger.Step{Nonce: ledger.NewNonce(), At: store.Now()}
	audit.Append(&step, rows...)
	res, err := store.Apply(context.Background(), scope, step)
	require.NoError(t, err)
	require.True(t, res.Applied)
}

const keep = 400 * 24 * time.Hour

// prepare makes the step that folds the next rows, and does not apply it.
func prepare(t require.TestingT, store ledger.Store, scope ledger.Scope, limit int) ledger.Step {
	ctx := context.Background()
	snap, err := store.Read(ctx, scope, usage.Fetch(usage.Batch{})...)
	require.NoError(t, err)
	b := usage.Batch{After: usage.Folded(snap)}
	b.Rows, err = store.Rows(ctx, scope, ledger.RowRange{After: b.After, Limit: limit})
	require.NoError(t, err)
	snap, err = store.Read(ctx, scope, usage.Fetch(b)...)
	require.NoError(t, err)
	step := ledger.Step{Nonce: ledger.NewNonce(), At: snap.Now}
	require.NoError(t, usage.Fold(&step, snap, b, keep))
	return step
}

func apply(t require.TestingT, store ledger.Store, scope ledger.Scope, step ledger.Step) bool {
	res, err := store.Apply(context.Background(), scope, step)
	require.NoError(t, err)
	return res.Applied
}

// all reads every row of the scope.
func all(t require.TestingT, store ledger.Store, scope ledger.Scope) []ledger.Row {
	rows, err := store.Rows(context.Background(), scope, ledger.RowRange{Limit: 1 << 20})
	require.NoError(t, err)
	return rows
}

// naive is what a report must come to, counted from the rows alone.
func naive(rows []ledger.Row, q usage.Query) usage.Report {
	lines := map[usage.Line]usage.Counts{}
	var r usage.Report
	for d, cells := range usage.CountRows(rows) {
		if d < q.From || d >= q.To {
			continue
		}
		for cell, n := range cells {
			r.Total.Add(n)
			var name usage.Line
			if slices.Contains(q.By, usage.ByDay) {
				name.Day = d
			}
			if slices.Contains(q.By, usage.ByConnection) {
				name.Connection = cell.Connection
			}
			if slices.Contains(q.By, usage.ByAction) {
				name.Action = cell.Action
			}
			if slices.Contains(q.By, usage.ByKey) {
				name.KeyID = cell.KeyID
			}
			sum := lines[name]
			sum.Add(n)
			lines[name] = sum
		}
	}
	if len(q.By) == 0 {
		return r
	}
	for name, n := range lines {
		name.Counts = n
		r.Lines = append(r.Lines, name)
	}
	return r
}

func randomRow(t *rapid.T) audit.Row {
	return audit.Row{
		Event:      rapid.SampledFrom(audit.Events()).Draw(t, "event"),
		Outcome:    rapid.SampledFrom([]string{"", "succeeded", "refused", "held", "not_done"}).Draw(t, "outcome"),
		Reason:     rapid.SampledFrom([]string{"", "forbidden", "unknown_action", "timeout"}).Draw(t, "reason"),
		Connection: rapid.SampledFrom([]string{"", "billing", "crm"}).Draw(t, "connection"),
		Action:     rapid.SampledFrom([]string{"", "create", "remove"}).Draw(t, "action"),
		Actor:      audit.Actor{Kind: audit.KindKey, KeyID: rapid.SampledFrom([]string{"", "k1", "k2"}).Draw(t, "key")},
		Subject:    rapid.SampledFrom([]string{"", "suppressed:3"}).Draw(t, "subject"),
	}
}

// Whatever is appended, folded, folded twice or by two at once, a report is
// what the rows add up to.
func TestUsageEqualsCountingTheRows(t *testing.T) {
	store, clock := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	reader := usage.NewReader(store)
	checks := 0
	rapid.Check(t, func(t *rapid.T) {
		checks++ // an empty scope for each
		scope, began := ledger.ScopeOf(fmt.Sprint(checks)), usage.DayOf(store.Now())
		var stale []ledger.Step
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				appendRows(t, store, scope, rapid.SliceOfN(rapid.Custom(randomRow), 1, 4).Draw(t, "rows")...)
			},
			"an unreadable row": func(t *rapid.T) {
				require.True(t, apply(t, store, scope, ledger.Step{Nonce: ledger.NewNonce(), At: store.Now(), Rows: [][]byte{[]byte("?")}}))
			},
			"time": func(t *rapid.T) {
				clock.advance(time.Duration(rapid.Int64Range(1, int64(40*time.Hour)).Draw(t, "advance")))
			},
			"fold": func(t *rapid.T) {
				apply(t, store, scope, prepare(t, store, scope, rapid.IntRange(1, 6).Draw(t, "limit")))
			},
			"another is as far": func(t *rapid.T) { stale = append(stale, prepare(t, store, scope, 3)) },
			"the other folds, too": func(t *rapid.T) {
				for _, step := range stale {
					step.At = store.Now()
					apply(t, store, scope, step)
				}
				stale = nil
			},
			"report": func(t *rapid.T) {
				from := began + usage.Day(rapid.IntRange(-40, 3).Draw(t, "from"))
				q := usage.Query{From: from, To: from + usage.Day(rapid.IntRange(1, 70).Draw(t, "days")),
					By: rapid.SliceOfNDistinct(rapid.SampledFrom(usage.Dimensions()), 0, 4, rapid.ID[usage.Dimension]).Draw(t, "by")}
				got, err := reader.Report(context.Background(), scope, q)
				require.NoError(t, err)
				want := naive(all(t, store, scope), q)
				require.Equal(t, want.Total, got.Total)
				require.ElementsMatch(t, want.Lines, got.Lines)
			},
		})
	})
}

func TestLinesComeInOrder(t *testing.T) {
	store, clock := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	for range 2 {
		for _, key := range []string{"k2", "k1"} {
			for _, connection := range []string{"crm", "billing"} {
				appendRows(t, store, acme, audit.Row{Event: audit.Succeeded, Connection: connection, Action: "a", Actor: audit.Actor{KeyID: key}})
			}
		}
		clock.advance(24 * time.Hour)
	}
	today := usage.DayOf(noon)
	got, err := usage.NewReader(store).Report(t.Context(), acme, usage.Query{From: today, To: today + 3, By: usage.Dimensions()})
	require.NoError(t, err)
	require.Len(t, got.Lines, 8)
	require.True(t, slices.IsSortedFunc(got.Lines, func(a, b usage.Line) int {
		return slices.Compare([]string{a.Day.String(), a.Connection, a.KeyID}, []string{b.Day.String(), b.Connection, b.KeyID})
	}))
	require.Equal(t, store.Now(), got.At)
}

func TestReportIsBounded(t *testing.T) {
	store, _ := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	today := usage.DayOf(noon)
	reader := usage.NewReader(store)
	for _, q := range []usage.Query{{From: today, To: today}, {From: today, To: today - 1}, {From: today, To: today + usage.MaxDays + 1}} {
		_, err := reader.Report(t.Context(), acme, q)
		require.ErrorIs(t, err, usage.ErrRange)
		require.True(t, usage.IsQueryError(err))
	}
	for d := range usage.Day(6) {
		cells := usage.Cells{}
		for i := range usage.MaxCells {
			cells.Add(usage.Cell{KeyID: fmt.Sprint(d, i)}, counts{usage.Writes: 1}.full())
		}
		require.True(t, apply(t, store, acme, ledger.Step{Nonce: ledger.NewNonce(), At: noon,
			Put: []ledger.Put{{Key: ledger.Key{Kind: ledger.Usage, ID: (today + d).String()}, Data: usage.EncodeDay(cells)}}}))
	}
	_, err := reader.Report(t.Context(), acme, usage.Query{From: today, To: today + 6, By: []usage.Dimension{usage.ByKey}})
	require.ErrorIs(t, err, usage.ErrLines)
	got, err := reader.Report(t.Context(), acme, usage.Query{From: today, To: today + 6})
	require.NoError(t, err)
	require.Equal(t, int64(6*usage.MaxCells), got.Total[usage.Writes])
}

// A fold that would leave rows out is refused, and one that comes late does
// nothing.
func TestFoldLeavesNothingOut(t *testing.T) {
	store, _ := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	for range 3 {
		appendRows(t, store, acme, audit.Row{Event: audit.Succeeded})
	}
	rows := all(t, store, acme)
	empty := ledger.Snapshot{Now: noon}
	var step ledger.Step
	require.ErrorIs(t, usage.Fold(&step, empty, usage.Batch{After: rows[0].Cursor, Rows: rows[1:]}, keep), usage.ErrGap)
	require.Empty(t, step.Put)

	require.True(t, apply(t, store, acme, prepare(t, store, acme, 10)))
	snap, err := store.Read(t.Context(), acme, usage.Fetch(usage.Batch{})...)
	require.NoError(t, err)
	require.Equal(t, rows[2].Cursor, usage.Folded(snap))
	require.NoError(t, usage.Fold(&step, snap, usage.Batch{Rows: rows}, keep))
	require.Empty(t, step.Put, "counted before")

	appendRows(t, store, acme, audit.Row{Event: audit.Succeeded})
	b := usage.Batch{After: rows[1].Cursor, Rows: all(t, store, acme)[2:]}
	snap, err = store.Read(t.Context(), acme, usage.Fetch(b)...)
	require.NoError(t, err)
	require.NoError(t, usage.Fold(&step, snap, b, keep))
	step.Nonce, step.At = ledger.NewNonce(), snap.Now
	require.True(t, apply(t, store, acme, step))
	got, err := usage.NewReader(store).Report(t.Context(), acme, usage.Query{From: usage.DayOf(noon), To: usage.DayOf(noon) + 1})
	require.NoError(t, err)
	require.Equal(t, int64(4), got.Total[usage.Writes], "one row of the batch was counted before")
}

func TestDamagedFiguresAreNotShown(t *testing.T) {
	store, _ := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	today := usage.DayOf(noon)
	appendRows(t, store, acme, audit.Row{Event: audit.Succeeded})
	require.True(t, apply(t, store, acme, ledger.Step{Nonce: ledger.NewNonce(), At: noon,
		Put: []ledger.Put{{Key: ledger.Key{Kind: ledger.Usage, ID: today.String()}, Data: []byte{9}}}}))
	_, err := usage.NewReader(store).Report(t.Context(), acme, usage.Query{From: today, To: today + 1})
	require.ErrorIs(t, err, ledger.ErrCorrupt)
	b := usage.Batch{Rows: all(t, store, acme)}
	snap, err := store.Read(t.Context(), acme, usage.Fetch(b)...)
	require.NoError(t, err)
	require.ErrorIs(t, usage.Fold(&ledger.Step{}, snap, b, keep), ledger.ErrCorrupt)
}

// Rows that are folded while a report is made are counted once.
func TestFoldingDuringAReport(t *testing.T) {
	store, clock := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	for range 60 {
		appendRows(t, store, acme, audit.Row{Event: audit.Succeeded})
		clock.advance(24 * time.Hour)
	}
	meddling := &meddler{Store: store, between: func() { apply(t, store, acme, prepare(t, store, acme, 25)) }}
	first := usage.DayOf(noon)
	got, err := usage.NewReader(meddling).Report(t.Context(), acme, usage.Query{From: first, To: first + 60})
	require.NoError(t, err)
	require.Equal(t, int64(60), got.Total[usage.Writes])
}

// meddler does something before each read.
type meddler struct {
	ledger.Store
	between func()
}

func (m *meddler) Read(ctx context.Context, scope ledger.Scope, f ...ledger.Fetch) (ledger.Snapshot, error) {
	m.between()
	return m.Store.Read(ctx, scope, f...)
}

func (m *meddler) Rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) ([]ledger.Row, error) {
	m.between()
	return m.Store.Rows(ctx, scope, r)
}

// A row counts on the day it shows, though the store had another by its clock.
func TestARowCountsOnTheDayItShows(t *testing.T) {
	store, clock := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	today := usage.DayOf(noon)
	for _, c := range []struct {
		off time.Duration // of the store's clock from midnight
		at  time.Duration // of the writer's
	}{
		{-time.Second / 2, time.Second / 4},
		{time.Second / 2, -time.Second / 4},
	} {
		midnight := (today + 1).Start()
		clock.advance(midnight.Add(c.off).Sub(clock.Now()))
		step := ledger.Step{At: midnight.Add(c.at), Nonce: ledger.NewNonce()}
		audit.Append(&step, audit.Row{Event: audit.Succeeded})
		require.True(t, apply(t, store, acme, step))
	}
	for range 2 { // before it is folded, and after
		for _, d := range []usage.Day{today, today + 1} {
			got, err := usage.NewReader(store).Report(t.Context(), acme, usage.Query{From: d, To: d + 1})
			require.NoError(t, err)
			require.Equal(t, int64(1), got.Total[usage.Writes], d)
		}
		apply(t, store, acme, prepare(t, store, acme, 10))
	}
}
