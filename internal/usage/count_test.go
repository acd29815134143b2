package usage_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/usage"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

type counts map[usage.Column]int64

func (c counts) full() usage.Counts {
	var n usage.Counts
	for column, v := range c {
		n[column] = v
	}
	return n
}

// Where each event counts. An event that is added has to be given its place.
func TestEveryEventHasItsPlace(t *testing.T) {
	type place struct {
		outcome string
		counts  counts
	}
	places := map[audit.Event][]place{
		audit.Claimed:   {{"in_flight", counts{usage.Claimed: 1}}},
		audit.Succeeded: {{"succeeded", counts{usage.Writes: 1}}},
		audit.Refused:   {{"refused", counts{usage.Refusals: 1}}},
		audit.Held:      {{"held", counts{usage.Held: 1}}},
		audit.LeaseLost: {{"held", counts{usage.Held: 1}}},
		audit.NotSent:   {{"not_done", counts{usage.NotDone: 1}}},
		audit.Released:  {{"not_done", counts{usage.NotDone: 1}}},
		audit.NotDone:   {{"not_done", counts{usage.NotDone: 1}}},
		audit.Lapsed:    {{"lapsed", counts{usage.Lapsed: 1}}},
		audit.Resolved: {
			{"succeeded", counts{usage.Resolved: 1, usage.Writes: 1}},
			{"not_done", counts{usage.Resolved: 1}}, // its row not_done follows
		},
		audit.Recovered: {
			{"succeeded", counts{usage.Recovered: 1, usage.Writes: 1}},
			{"refused", counts{usage.Recovered: 1, usage.Refusals: 1}},
		},
		audit.Replayed: {
			{"succeeded", counts{usage.Replays: 1, usage.DuplicatesPrevented: 1}},
			{"refused", counts{usage.Replays: 1}},
		},
		audit.InFlight:    {{"in_flight", counts{usage.InFlight: 1, usage.DuplicatesPrevented: 1}}},
		audit.HeldRepeat:  {{"held", counts{usage.HeldRepeats: 1, usage.DuplicatesPrevented: 1}}},
		audit.TwinRefused: {{"in_flight", counts{usage.TwinRefused: 1, usage.DuplicatesPrevented: 1}}},
		audit.KeyReused:   {{"succeeded", counts{usage.KeyReused: 1}}},
		audit.Denied:      {{"", counts{usage.Denied: 1}}},
		audit.RateLimited: {{"", counts{usage.RateLimited: 1}}},
		audit.LateAnswer:  {{"succeeded", nil}, {"held", nil}},
		audit.Checked:     {{"held", nil}, {"succeeded", nil}},
	}
	for _, e := range audit.Events() {
		if _, administration := places[e]; !administration {
			require.Contains(t, string(e), ".", "%s is an event of a write and has no place", e)
			places[e] = []place{{"", nil}}
		}
		for _, p := range places[e] {
			require.Equal(t, p.counts.full(), usage.Count(audit.Row{Event: e, Outcome: p.outcome}), "%s %s", e, p.outcome)
		}
	}
	require.Zero(t, usage.Count(audit.Row{Event: "store.failed_over"}), "an event of a newer release")
}

func TestFloodOfRefusalsIsCountedWhole(t *testing.T) {
	for subject, n := range map[string]int64{
		"": 1, "suppressed:41": 42, "suppressed:0": 1, "suppressed:-3": 1, "suppressed:x": 1, "suppressed:007": 1, "41": 1,
	} {
		require.Equal(t, n, usage.Count(audit.Row{Event: audit.RateLimited, Subject: subject})[usage.RateLimited], subject)
	}
}

func stored(cursor int, row audit.Row) ledger.Row {
	return ledger.Row{Cursor: fmt.Sprintf("%08d", cursor), At: row.At, Data: row.Encode()}
}

func TestRowsCountByDayConnectionActionAndKey(t *testing.T) {
	row := audit.Row{Event: audit.Succeeded, At: noon, Connection: "billing", Action: "create",
		Actor: audit.Actor{Kind: audit.KindKey, KeyID: "k1"}}
	other, night, system := row, row, row
	other.Connection = "crm"
	night.At = time.Date(2026, 3, 4, 23, 59, 59, 999_000_000, time.UTC).Add(time.Millisecond)
	system.Actor = audit.System()

	got := usage.CountRows([]ledger.Row{
		stored(1, row), stored(2, row), stored(3, other), stored(4, night), stored(5, system),
		{Cursor: "6", At: noon, Data: []byte("no row")},
	})

	today := usage.DayOf(noon)
	cell := usage.Cell{Connection: "billing", Action: "create", KeyID: "k1"}
	require.Equal(t, usage.Tally{
		today: {
			cell: counts{usage.Writes: 2}.full(),
			{Connection: "crm", Action: "create", KeyID: "k1"}: counts{usage.Writes: 1}.full(),
			{Connection: "billing", Action: "create"}:          counts{usage.Writes: 1}.full(),
			{}: counts{usage.Unreadable: 1}.full(),
		},
		today + 1: {cell: counts{usage.Writes: 1}.full()},
	}, got)
}

// A caller can name anything in a request that is denied; that must not fill
// the store with figures of names that do not exist.
func TestDeniedCallsCountUnderNamesThatExist(t *testing.T) {
	for reason, want := range map[string]usage.Cell{
		"forbidden":          {},
		"unknown_connection": {},
		"unknown_action":     {Connection: "c"},
		"connection_paused":  {Connection: "c", Action: "a"},
		"invalid_body":       {Connection: "c", Action: "a"},
	} {
		tally := usage.CountRows([]ledger.Row{stored(1, audit.Row{
			Event: audit.Denied, At: noon, Reason: reason, Connection: "c", Action: "a",
		})})
		require.Equal(t, usage.Tally{usage.DayOf(noon): {want: counts{usage.Denied: 1}.full()}}, tally, reason)
	}
}

func TestDays(t *testing.T) {
	require.Equal(t, "2026-03-04", usage.DayOf(noon).String())
	require.Equal(t, "1969-12-31", usage.DayOf(time.Unix(-1, 0)).String())
	require.Equal(t, usage.DayOf(noon), usage.DayOf(noon.Add(12*time.Hour-1)))
	require.Equal(t, usage.DayOf(noon)+1, usage.DayOf(noon.Add(12*time.Hour)))
	d, ok := usage.ParseDay("2026-03-04")
	require.True(t, ok)
	require.Equal(t, usage.DayOf(noon), d)
	for _, bad := range []string{"", "2026-3-4", "2026-02-30", "2026-03-04T00:00:00Z", "26-03-04", " 2026-03-04"} {
		_, ok := usage.ParseDay(bad)
		require.False(t, ok, bad)
	}
}

func TestADayHasRoomForSoManyCells(t *testing.T) {
	cells := usage.Cells{}
	for i := range usage.MaxCells + 10 {
		for range 2 {
			cells.Add(usage.Cell{KeyID: fmt.Sprint(i)}, counts{usage.Writes: 1}.full())
		}
	}
	require.Len(t, cells, usage.MaxCells+1)
	require.Equal(t, counts{usage.Writes: 20}.full(), cells[usage.Cell{Connection: usage.OtherName, Action: usage.OtherName, KeyID: usage.OtherName}])
	require.Equal(t, int64(2*(usage.MaxCells+10)), usage.Tally{0: cells}.Total()[usage.Writes])
	again, err := usage.DecodeDay(usage.EncodeDay(cells))
	require.NoError(t, err)
	require.Equal(t, cells, again)
}

func TestColumnsAreNamedOnce(t *testing.T) {
	names := map[string]bool{}
	for _, c := range usage.Columns() {
		require.NotEmpty(t, c.String())
		require.False(t, names[c.String()], c.String())
		names[c.String()] = true
	}
	require.Len(t, names, len(usage.Counts{}))
	require.Equal(t, "column", usage.Column(99).String())
}

// The page that says what figures mean has each of them.
func TestEveryColumnIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	require.NoError(t, err)
	for _, c := range usage.Columns() {
		require.Contains(t, string(page), "\n| `"+c.String()+"` | ", "docs/audit.md")
	}
}
