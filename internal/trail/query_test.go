package trail_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/trail"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 4, 12, 0, 0, 250_000_000, time.UTC)

// newLog is the log of a store that seals nothing away.
func newLog(s ledger.Store) *trail.Log { return trail.New(s, nil) }

var scope = ledger.ScopeOf("acme")

// put appends rows, one step each, dated by the store.
func put(t *testing.T, log *trail.Log, rows ...audit.Row) {
	t.Helper()
	for _, r := range rows {
		require.NoError(t, log.Append(t.Context(), scope, r))
	}
}

func numbered(from, to int) (rows []audit.Row) {
	for i := from; i <= to; i++ {
		rows = append(rows, audit.Row{Event: audit.Claimed, ActionID: fmt.Sprint("act_", i)})
	}
	return rows
}

func ids(entries []audit.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, strings.TrimPrefix(e.ActionID, "act_"))
	}
	return out
}

// all pages through a query and returns the ids of each page.
func all(t *testing.T, log *trail.Log, f audit.Filter, p trail.Page) (pages [][]string) {
	t.Helper()
	for {
		entries, next, err := log.Query(t.Context(), scope, f, p)
		require.NoError(t, err)
		pages = append(pages, ids(entries))
		if next == "" {
			return pages
		}
		p.Cursor = next
	}
}

func TestQueryPagesInBothOrders(t *testing.T) {
	store, clock := openStore(t)
	log := newLog(store)
	for _, r := range numbered(1, 5) {
		put(t, log, r)
		clock.Advance(time.Second)
	}
	none := audit.Filter{}
	require.Equal(t, [][]string{{"1", "2"}, {"3", "4"}, {"5"}}, all(t, log, none, trail.Page{Limit: 2}))
	require.Equal(t, [][]string{{"5", "4"}, {"3", "2"}, {"1"}}, all(t, log, none, trail.Page{Limit: 2, Newest: true}))
	require.Equal(t, [][]string{{"1", "2", "3", "4", "5"}}, all(t, log, none, trail.Page{Limit: 5}), "a full last page has no next one")
	require.Equal(t, [][]string{nil}, all(t, newLog(store), audit.Filter{Event: audit.Lapsed}, trail.Page{Limit: 5}))

	entries, _, err := log.Query(t.Context(), ledger.ScopeOf("other"), none, trail.Page{Limit: 5})
	require.NoError(t, err)
	require.Empty(t, entries, "another scope sees nothing")
}

func TestCursorsStayStableWhileRowsAreAdded(t *testing.T) {
	store, _ := openStore(t)
	log := newLog(store)
	put(t, log, numbered(1, 4)...)

	first, older, err := log.Query(t.Context(), scope, audit.Filter{}, trail.Page{Limit: 2, Newest: true})
	require.NoError(t, err)
	require.Equal(t, []string{"4", "3"}, ids(first))
	first, newer, err := log.Query(t.Context(), scope, audit.Filter{}, trail.Page{Limit: 3})
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2", "3"}, ids(first))

	put(t, log, numbered(5, 6)...)

	require.Equal(t, [][]string{{"2", "1"}}, all(t, log, audit.Filter{}, trail.Page{Limit: 2, Newest: true, Cursor: older}))
	require.Equal(t, [][]string{{"4", "5", "6"}}, all(t, log, audit.Filter{}, trail.Page{Limit: 3, Cursor: newer}))
}

func TestFilters(t *testing.T) {
	store, clock := openStore(t)
	log := newLog(store)
	row := func(id string, change func(*audit.Row)) audit.Row {
		r := audit.Row{
			Event: audit.Claimed, ActionID: "act_" + id, Connection: "billing", Action: "create",
			Actor: audit.Actor{Kind: audit.KindKey, KeyID: "k1"}, Identity: "9f2c000000000000",
			Meta: map[string]string{"run": "7", "to": "<a>"},
		}
		change(&r)
		return r
	}
	rows := []audit.Row{
		row("1", func(*audit.Row) {}),
		row("2", func(r *audit.Row) { r.Event = audit.Held }),
		row("3", func(r *audit.Row) { r.Connection = "crm" }),
		row("4", func(r *audit.Row) { r.Action = "delete" }),
		row("5", func(r *audit.Row) { r.Actor.KeyID = "k2" }),
		row("6", func(r *audit.Row) {
			r.Identity, r.Outcome, r.Meta = "9f2c000000000006", "unknown", map[string]string{"run": "8", "to": "<a>", "empty": ""}
		}),
	}
	for _, r := range rows {
		put(t, log, r)
		clock.Advance(time.Second)
	}
	at := func(n int) time.Time { return noon.Add(time.Duration(n-1) * time.Second) }
	for name, tt := range map[string]struct {
		filter audit.Filter
		want   []string
	}{
		"all":                {audit.Filter{}, []string{"1", "2", "3", "4", "5", "6"}},
		"event":              {audit.Filter{Event: audit.Held}, []string{"2"}},
		"connection":         {audit.Filter{Connection: "crm"}, []string{"3"}},
		"action":             {audit.Filter{Action: "delete"}, []string{"4"}},
		"action id":          {audit.Filter{ActionID: "act_6"}, []string{"6"}},
		"key":                {audit.Filter{KeyID: "k2"}, []string{"5"}},
		"identity":           {audit.Filter{Identity: "9f2c000000000006"}, []string{"6"}},
		"outcome":            {audit.Filter{Outcome: "unknown"}, []string{"6"}},
		"label":              {audit.Filter{Meta: map[string]string{"run": "8"}}, []string{"6"}},
		"labels":             {audit.Filter{Meta: map[string]string{"run": "7", "to": "<a>"}}, []string{"1", "2", "3", "4", "5"}},
		"one label too many": {audit.Filter{Meta: map[string]string{"run": "7", "empty": ""}}, nil},
		"an empty label":     {audit.Filter{Meta: map[string]string{"empty": ""}}, []string{"6"}},
		"other value":        {audit.Filter{Meta: map[string]string{"run": ""}}, nil},
		"together":           {audit.Filter{KeyID: "k1", Event: audit.Claimed, Connection: "billing", Action: "create"}, []string{"1", "6"}},
		"nothing":            {audit.Filter{KeyID: "k2", Event: audit.Held}, nil},
		"since is inclusive": {audit.Filter{Since: at(5)}, []string{"5", "6"}},
		"until is not":       {audit.Filter{Until: at(3)}, []string{"1", "2"}},
		"between":            {audit.Filter{Since: at(2), Until: at(4)}, []string{"2", "3"}},
		"an instant":         {audit.Filter{Since: at(2), Until: at(2)}, nil},
		"backwards":          {audit.Filter{Since: at(4), Until: at(2)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, slices.Concat(all(t, log, tt.filter, trail.Page{Limit: 100})...))
			require.Equal(t, tt.want, slices.Concat(all(t, log, tt.filter, trail.Page{Limit: 1})...))
			require.Len(t, all(t, log, tt.filter, trail.Page{Limit: max(len(tt.want), 1)}), 1, "a page of all that match is the last")
			backwards := slices.Concat(all(t, log, tt.filter, trail.Page{Limit: 2, Newest: true})...)
			slices.Reverse(backwards)
			require.Equal(t, tt.want, backwards)
		})
	}
}

// The store may date a row up to ledger.Drift away from the time in it; the
// time in it is what people see and select by.
func TestTimeFilterGoesByTheTimeShown(t *testing.T) {
	store, _ := openStore(t)
	log := newLog(store)
	for i, ahead := range []time.Duration{-900 * time.Millisecond, 0, 900 * time.Millisecond} {
		step := ledger.Step{Nonce: ledger.NewNonce(), At: noon.Add(ahead)}
		audit.Append(&step, numbered(i+1, i+1)...)
		res, err := store.Apply(t.Context(), scope, step)
		require.NoError(t, err)
		require.True(t, res.Applied)
	}
	page := trail.Page{Limit: 10}
	require.Equal(t, [][]string{{"1"}}, all(t, log, audit.Filter{Until: noon}, page))
	require.Equal(t, [][]string{{"3"}}, all(t, log, audit.Filter{Since: noon.Add(time.Millisecond)}, page))
	require.Equal(t, [][]string{{"1"}}, all(t, log, audit.Filter{Since: noon.Add(-time.Second), Until: noon.Add(-500 * time.Millisecond)}, page))
}

func TestUnreadableRowsAreShownNotHidden(t *testing.T) {
	store, clock := openStore(t)
	log := newLog(store)
	put(t, log, numbered(1, 1)...)
	clock.Advance(time.Second)
	res, err := store.Apply(t.Context(), scope, ledger.Step{Nonce: ledger.NewNonce(), At: store.Now(), Rows: [][]byte{[]byte(`{"v":1`)}})
	require.NoError(t, err)
	require.True(t, res.Applied)

	entries, next, err := log.Query(t.Context(), scope, audit.Filter{Event: audit.Held}, trail.Page{Limit: 10})
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, entries, 1)
	require.True(t, entries[0].Unreadable)
	require.Equal(t, audit.Row{At: noon.Add(time.Second)}, entries[0].Row)
	require.NotEmpty(t, entries[0].Cursor)

	entries, _, err = log.Query(t.Context(), scope, audit.Filter{Until: noon.Add(time.Second)}, trail.Page{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, ids(entries))
	require.False(t, entries[0].Unreadable)
}

// A filter that few rows pass may not make one call read a whole log.
func TestOneQueryReadsABoundedNumberOfRows(t *testing.T) {
	inner, _ := openStore(t)
	for range 21 {
		step := ledger.Step{Nonce: ledger.NewNonce(), At: inner.Now()}
		audit.Append(&step, slices.Repeat([]audit.Row{{Event: audit.Claimed, ActionID: "act_x"}}, 1000)...)
		res, err := inner.Apply(t.Context(), scope, step)
		require.NoError(t, err)
		require.True(t, res.Applied)
	}
	put(t, newLog(inner), audit.Row{Event: audit.Held, ActionID: "act_last"})

	read := 0
	log := newLog(&faulty{Store: inner, rows: func(r ledger.RowRange) { read += r.Limit }})
	p := trail.Page{Limit: 10}
	entries, next, err := log.Query(t.Context(), scope, audit.Filter{Event: audit.Held}, p)
	require.NoError(t, err)
	require.Empty(t, entries, "a short page")
	require.NotEmpty(t, next, "that has a next one")
	require.LessOrEqual(t, read, 10_500)

	pages := all(t, log, audit.Filter{Event: audit.Held}, p)
	require.Equal(t, []string{"last"}, slices.Concat(pages...))
	require.Greater(t, len(pages), 2)

	read = 0
	_, _, err = log.Query(t.Context(), scope, audit.Filter{}, p)
	require.NoError(t, err)
	require.Equal(t, 11, read, "a page of everything reads that page")
}

func TestQueryRefuses(t *testing.T) {
	store, _ := openStore(t)
	log := newLog(store)
	put(t, log, numbered(1, 5)...)
	held := audit.Filter{Event: audit.Claimed}
	_, cursor, err := log.Query(t.Context(), scope, held, trail.Page{Limit: 2})
	require.NoError(t, err)

	for _, limit := range []int{-1, 0, trail.MaxPage + 1} {
		_, _, err := log.Query(t.Context(), scope, held, trail.Page{Limit: limit})
		require.ErrorIs(t, err, trail.ErrLimit)
	}
	for name, q := range map[string]struct {
		filter audit.Filter
		page   trail.Page
	}{
		"no base64":     {held, trail.Page{Limit: 2, Cursor: "!"}},
		"too short":     {held, trail.Page{Limit: 2, Cursor: cursor[:8]}},
		"other order":   {held, trail.Page{Limit: 2, Cursor: cursor, Newest: true}},
		"other filter":  {audit.Filter{Event: audit.Held}, trail.Page{Limit: 2, Cursor: cursor}},
		"other member":  {audit.Filter{Connection: "claimed"}, trail.Page{Limit: 2, Cursor: cursor}},
		"other label":   {audit.Filter{Event: audit.Claimed, Meta: map[string]string{"a": ""}}, trail.Page{Limit: 2, Cursor: cursor}},
		"other since":   {audit.Filter{Event: audit.Claimed, Since: noon}, trail.Page{Limit: 2, Cursor: cursor}},
		"other until":   {audit.Filter{Event: audit.Claimed, Until: noon}, trail.Page{Limit: 2, Cursor: cursor}},
		"a line break":  {held, trail.Page{Limit: 2, Cursor: cursor[:5] + "\n" + cursor[5:]}},
		"control bytes": {held, trail.Page{Limit: 2, Cursor: cursor[:10] + "AAAA"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := log.Query(t.Context(), scope, q.filter, q.page)
			require.ErrorIs(t, err, trail.ErrCursor)
		})
	}
	entries, _, err := log.Query(t.Context(), scope, held, trail.Page{Limit: 3, Cursor: cursor})
	require.NoError(t, err, "another page size is fine")
	require.Equal(t, []string{"3", "4", "5"}, ids(entries))
}

func TestStoreErrorsReachTheCaller(t *testing.T) {
	store, _ := openStore(t)
	log := newLog(store)
	require.NoError(t, store.Close())
	_, _, err := log.Query(t.Context(), scope, audit.Filter{}, trail.Page{Limit: 1})
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.ErrorIs(t, log.Append(t.Context(), scope, numbered(1, 1)...), ledger.ErrUnavailable)
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("AAAAAAAAAAAAAAAA")
	f.Add("____")
	log := newLog(nil)
	f.Fuzz(func(t *testing.T, cursor string) {
		if cursor == "" {
			return
		}
		// The store is not there: whatever gets past the check panics.
		_, _, err := log.Query(t.Context(), scope, audit.Filter{}, trail.Page{Limit: 1, Cursor: cursor})
		require.ErrorIs(t, err, trail.ErrCursor)
	})
}
