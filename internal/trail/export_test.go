package trail_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/trail"
)

func export(t *testing.T, log *trail.Log, e trail.Export) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, log.Export(t.Context(), scope, e, &b))
	return b.String()
}

// The whole log is the segments as they were stored, and the rest behind them.
func TestExportOfTheWholeLogIsItsSegments(t *testing.T) {
	log, shelf := sealed(t)
	got := export(t, log, trail.Export{})
	want := ""
	for _, p := range shelf.parts {
		text, err := shelf.Text(t.Context(), p.entry)
		require.NoError(t, err)
		want += string(text)
	}
	require.Equal(t, want, export(t, log, trail.Export{Sealed: true}))
	rest, ok := strings.CutPrefix(got, want)
	require.True(t, ok)
	require.Equal(t, 1, strings.Count(rest, "\n"))
	require.Contains(t, rest, `{"type":"row","seq":7,`)
	require.Contains(t, rest, `"action_id":"act_7"`)
	require.NotContains(t, rest, `"hash"`)

	var none bytes.Buffer
	require.NoError(t, log.Export(t.Context(), ledger.ScopeOf("other"), trail.Export{}, &none))
	require.Empty(t, none.String(), "another scope has nothing")
}

// cursorBehind is where an export that ends with these lines goes on.
func cursorBehind(t *testing.T, lines []string) string {
	t.Helper()
	mark := ""
	for i := len(lines) - 1; i >= 0; i-- {
		var line struct{ Type, Cursor string }
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &line))
		switch line.Type {
		case "checkpoint":
			mark += trail.CheckpointMark
		case "row":
			return line.Cursor + mark
		}
	}
	return ""
}

// Wherever it is broken off, what follows makes it whole, to the byte.
func TestABrokenExportGoesOnWhereItEnded(t *testing.T) {
	log, shelf := sealed(t)
	for format, filter := range map[trail.Format]audit.Filter{trail.NDJSON: {}, trail.CSV: {}, 9: {Event: audit.Claimed}} {
		e := trail.Export{Filter: filter, Format: format}
		if format == 9 {
			e.Format = trail.NDJSON
		}
		whole := export(t, log, e)
		lines := strings.SplitAfter(strings.TrimSuffix(whole, "\n"), "\n")
		for n := 1; n <= len(lines); n++ {
			got := lines[:n]
			if strings.HasPrefix(got[n-1], `{"type":"segment"`) {
				continue // nothing is behind a header alone: it comes again
			}
			if e.Format == trail.CSV {
				if n == 1 {
					continue // there is no row yet
				}
				records, err := csv.NewReader(strings.NewReader(got[n-1])).ReadAll()
				require.NoError(t, err)
				e.Cursor = records[0][1]
			} else {
				e.Cursor = cursorBehind(t, got)
			}
			require.Equal(t, strings.TrimSuffix(whole, "\n"), strings.TrimSuffix(strings.Join(got, "")+export(t, log, e), "\n"), "behind line %d", n)
		}
	}

	// A row that was not sealed yet goes on among sealed ones.
	shelf.seal(t, 3)
	rest := export(t, log, trail.Export{Cursor: shelf.parts[2].entry.Cursor})
	require.True(t, strings.HasPrefix(rest, `{"type":"checkpoint"`))
	require.Equal(t, 1, strings.Count(rest, "\n"))
	require.Empty(t, export(t, log, trail.Export{Cursor: shelf.parts[2].entry.Cursor + trail.CheckpointMark}))
}

// A label may look like the place of a row.
func TestALabelIsNoCursor(t *testing.T) {
	store, _ := openStore(t)
	shelf := newShelf(store)
	log := trail.New(store, shelf)
	put(t, log, numbered(1, 2)...)
	found, err := store.Rows(t.Context(), scope, ledger.RowRange{Limit: 2})
	require.NoError(t, err)
	put(t, log, audit.Row{Event: audit.Claimed, Meta: map[string]string{"cursor": found[1].Cursor}})
	shelf.seal(t, 3)
	require.Equal(t, 2, strings.Count(export(t, log, trail.Export{Cursor: found[1].Cursor}), "\n"), "a row and the checkpoint")
}

func TestExportOfAPartIsRowsWithoutProof(t *testing.T) {
	log, shelf := sealed(t)
	got := export(t, log, trail.Export{Filter: audit.Filter{ActionID: "act_5"}})
	require.Equal(t, 1, shelf.opened, "and other segments stay closed")
	require.Equal(t, 1, strings.Count(got, "\n"))
	require.Contains(t, got, `{"type":"row","seq":5,`)
	require.NotContains(t, got, "hash")
	require.NotContains(t, got, "checkpoint")

	got = export(t, log, trail.Export{Filter: audit.Filter{Since: noon.Add(4 * time.Second), Until: noon.Add(6 * time.Second)}})
	require.Equal(t, 2, strings.Count(got, "\n"))
	require.NotContains(t, got, "hash")
	require.Empty(t, export(t, log, trail.Export{Filter: audit.Filter{Since: noon, Until: noon}}))
	got = export(t, log, trail.Export{Filter: audit.Filter{Since: noon.Add(6 * time.Second)}})
	require.Contains(t, got, `"seq":7,`, "rows that are not sealed are numbered all the same")
}

func TestCSV(t *testing.T) {
	store, _ := openStore(t)
	log := newLog(store)
	put(t, log, audit.Row{
		Event: audit.Denied, Tenant: "acme", Actor: audit.Actor{Kind: audit.KindKey, KeyID: "k1"}, Connection: "=1+1", Action: "a;@b",
		VendorStatus: 201, DurationMS: 7, Changed: []string{"a", "b"}, Meta: map[string]string{"run": "a\",\n=x", "é": "-1"},
	})
	res, err := store.Apply(t.Context(), scope, ledger.Step{Nonce: ledger.NewNonce(), At: store.Now(), Rows: [][]byte{[]byte(`{"v":1`)}})
	require.NoError(t, err)
	require.True(t, res.Applied)

	text := export(t, log, trail.Export{Format: trail.CSV})
	require.Equal(t, 3, strings.Count(text, "\r\n"))
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	require.NoError(t, err)
	cell := func(row int, name string) string {
		for i, column := range records[0] {
			if column == name {
				return records[row][i]
			}
		}
		require.Fail(t, name)
		return ""
	}
	require.Equal(t, "'=1+1", cell(1, "connection"))
	require.Equal(t, "a;'@b", cell(1, "action"))
	require.Equal(t, []string{"1", "2026-03-04T12:00:00.250Z", "denied", "acme", "key", "k1", "201", "7", "a b"}, []string{
		cell(1, "seq"), cell(1, "at"), cell(1, "event"), cell(1, "tenant"), cell(1, "actor"), cell(1, "key_id"),
		cell(1, "vendor_status"), cell(1, "duration_ms"), cell(1, "changed"),
	})
	require.JSONEq(t, `{"run":"a\",\n=x","é":"-1"}`, trail.Original(cell(1, "meta")))
	require.Equal(t, "true", cell(2, "unreadable"))
	require.Empty(t, cell(2, "event"))
}

// What a spreadsheet makes of a text, with whatever setting, is no formula.
func FuzzHarmless(f *testing.F) {
	for _, s := range []string{
		"", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "a;=1+1;b", "a,=1", `"=1`, "'=1", "''", "a|'=1", "＝1", "\xff=1", "plain", "a-b", "\n@x", "\u00a0=1", "\u3000=1", "\u200b=1", "\ufeff+1", "a \u2028@x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		safe := trail.Harmless(s)
		require.Equal(t, s, trail.Original(safe))
		for _, separator := range []string{",", ";", "\t", "|", ":", "\r", "\n", `"`, "\x00"} {
			for _, cell := range strings.Split(safe, separator) {
				cell = strings.Trim(cell, " \u00a0\u2028\u3000\u200b\ufeff\"")
				if cell != "" {
					require.False(t, strings.HasPrefix(cell, "=") || strings.HasPrefix(cell, "+") || strings.HasPrefix(cell, "-") ||
						strings.HasPrefix(cell, "@") || strings.HasPrefix(cell, "＝") || strings.HasPrefix(cell, "＋"), "%q in %q", cell, safe)
				}
			}
		}
	})
}

func FuzzCSVOfALabel(f *testing.F) {
	f.Add("run", `a","b`)
	f.Add("=1", "\r\n=x")
	f.Fuzz(func(t *testing.T, name, value string) {
		store, _ := openStore(t)
		log := newLog(store)
		put(t, log, audit.Row{Event: audit.Claimed, Connection: name, Meta: map[string]string{name: value}})
		records, err := csv.NewReader(strings.NewReader(export(t, log, trail.Export{Format: trail.CSV}))).ReadAll()
		require.NoError(t, err)
		require.Len(t, records, 2, "a label ends neither its field nor its record")
		var meta map[string]string
		require.NoError(t, json.Unmarshal([]byte(trail.Original(records[1][21])), &meta))
		require.Len(t, meta, 1)
	})
}

func TestExportRefusesACursorThatIsNone(t *testing.T) {
	log, _ := sealed(t)
	for _, cursor := range []string{"x", "~", " ", "é", strings.Repeat("0", 200), "0123\n"} {
		var b bytes.Buffer
		require.ErrorIs(t, log.Export(t.Context(), scope, trail.Export{Cursor: cursor}, &b), trail.ErrCursor, "%q", cursor)
		require.Zero(t, b.Len())
	}
}

func TestExportEndsAtADamagedSegment(t *testing.T) {
	log, shelf := sealed(t)
	shelf.broken[2] = fmt.Errorf("read: %w", archive.ErrDamaged)
	for _, e := range []trail.Export{{}, {Format: trail.CSV}, {Filter: audit.Filter{Event: audit.Claimed}}} {
		var got bytes.Buffer
		require.ErrorIs(t, log.Export(t.Context(), scope, e, &got), archive.ErrDamaged)
		require.Contains(t, got.String(), "act_3", "the last row in front of the damage is there")
		require.NotContains(t, got.String(), "act_4")
	}
	shelf.broken[1] = shelf.broken[2]
	var none bytes.Buffer
	require.ErrorIs(t, log.Export(t.Context(), scope, trail.Export{Format: trail.CSV}, &none), archive.ErrDamaged)
	require.Empty(t, none.String(), "names of columns alone are no export")
	delete(shelf.broken, 1)
	shelf.onHead = func() { shelf.kept = 3 } // its time was over, and it is no damage
	got := export(t, log, trail.Export{})
	require.Contains(t, got, `"seq":7,`)
}

// gate is a reader that takes what it is given only as often as it is opened.
type gate struct {
	open  chan struct{}
	taken chan int
}

func (g gate) Write(p []byte) (int, error) {
	<-g.open
	g.taken <- len(p)
	return len(p), nil
}

// Nothing is read ahead of who takes it: a slow reader holds one segment in
// memory, however many there are.
func TestASlowReaderHoldsTheExportBack(t *testing.T) {
	store, _ := openStore(t)
	shelf := newShelf(store)
	log := trail.New(store, shelf)
	for range 20 {
		put(t, log, numbered(1, 2)...)
		shelf.seal(t, 2)
	}
	g := gate{open: make(chan struct{}), taken: make(chan int)}
	ended := make(chan error, 1)
	go func() { ended <- log.Export(t.Context(), scope, trail.Export{}, g) }()
	for n := 1; n <= 20; n++ {
		g.open <- struct{}{}
		require.Equal(t, n, shelf.opened)
		require.Less(t, <-g.taken, 4096)
	}
	require.NoError(t, <-ended)

	require.ErrorIs(t, log.Export(t.Context(), scope, trail.Export{}, failing{}), errGone)
}

var errGone = errors.New("nobody there")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errGone }

// What is sealed, and let go by the store, while the rest of the log is exported
// is in the export all the same, once.
func TestRowsThatAreSealedDuringAnExportAreInIt(t *testing.T) {
	for at := 1; at <= 4; at++ {
		inner, _ := openStore(t)
		shelf := newShelf(inner)
		calls := 0
		store := &faulty{Store: inner, rows: func(ledger.RowRange) {
			if calls++; calls == at {
				shelf.seal(t, 700)
				shelf.trim(t, 0)
			}
		}}
		log := trail.New(store, shelf)
		put(t, log, numbered(1, 1)...)
		shelf.seal(t, 1)
		step := ledger.Step{Nonce: ledger.NewNonce(), At: inner.Now()}
		audit.Append(&step, numbered(2, 1200)...)
		res, err := inner.Apply(t.Context(), scope, step)
		require.NoError(t, err)
		require.True(t, res.Applied)

		got := export(t, log, trail.Export{})
		seq := 0
		for line := range strings.Lines(got) {
			var l struct {
				Type string
				Seq  int
			}
			require.NoError(t, json.Unmarshal([]byte(line), &l))
			if l.Type == "row" {
				seq++
				require.Equal(t, seq, l.Seq)
			}
		}
		require.Equal(t, 1200, seq, "at call %d", at)
	}
}
