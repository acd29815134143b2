package trail_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/trail"
)

var (
	benchRows  = flag.String("rows", "12000", "how long a log TestPagesOfALongLog measures; several lengths, ascending, with commas")
	benchTries = flag.Int("tries", 5, "how often it asks each question")
)

// long is a log of one tenant that goes on growing: rows in the store, sealed and
// let go by the sealer, as in a gateway.
type long struct {
	t      *testing.T
	store  ledger.Store
	clock  *clock
	sealer *archive.Sealer
	reader *archive.Reader
	log    *trail.Log
	rng    *rand.Rand
	rows   int
}

func newLong(t *testing.T) *long {
	dir := t.TempDir()
	c := &clock{now: noon}
	store, err := pebblestore.Open(filepath.Join(dir, "store"), pebblestore.Options{Clock: c.Now})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	folder, err := archive.NewFolder(filepath.Join(dir, "audit"))
	require.NoError(t, err)
	ring, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	l := &long{t: t, store: store, clock: c, rng: rand.New(rand.NewPCG(1, 2))}
	l.sealer, err = archive.NewSealer(archive.Config{
		Store: store, Storage: folder, Signer: ring, Backlog: archive.NewBacklog(archive.DefaultCut(), 0), Scopes: noScopes{},
		Retention: func(context.Context, ledger.Scope) (time.Duration, bool, error) {
			return archive.DefaultRetention, true, nil
		},
		Terms:   audit.EachTerm,
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	l.reader, err = archive.NewReader(store, folder)
	require.NoError(t, err)
	l.log = trail.New(store, l.reader)
	return l
}

type noScopes struct{}

func (noScopes) Scopes(context.Context, func(ledger.Scope) error) error { return nil }

// spacing is the time between two rows: ten million make 140 days.
const spacing = 1200 * time.Millisecond

// row is the nth row: two rows make a write, one write in 5,000 is held, and a
// run of the agent's makes 50 writes.
func (l *long) row(n int) audit.Row {
	write := n / 2
	r := audit.Row{
		Event: audit.Claimed, Tenant: "acme", Actor: audit.Actor{Kind: audit.KindKey, KeyID: "k" + strconv.Itoa(write%7)}, Front: "rest",
		RequestID: fmt.Sprintf("req_01K%023d", write), TraceID: fmt.Sprintf("%032x", write), ActionID: fmt.Sprintf("act_01K%023d", write),
		Connection: "connection-" + strconv.Itoa(write%20), Action: "action_" + strconv.Itoa(write%50),
		Identity: fmt.Sprintf("%016x", uint64(write)*0x9e3779b97f4a7c15), KeySource: "derived", Outcome: "in_flight",
		Meta: map[string]string{"run": "run-" + strconv.Itoa(write/50)},
	}
	if n%2 == 1 {
		r.Event, r.Outcome, r.VendorStatus, r.DurationMS = audit.Succeeded, "succeeded", 201, int64(80+n%400)
		if write%5000 == 4999 {
			r.Event, r.Outcome, r.Reason, r.VendorStatus = audit.Held, "held", "deadline", 0
		}
	}
	return r
}

// grow makes the log as long as that, and seals what is due on the way.
func (l *long) grow(rows int) {
	l.t.Helper()
	ctx := l.t.Context()
	for l.rows < rows {
		n := min(500, rows-l.rows)
		step := ledger.Step{Nonce: ledger.NewNonce(), At: l.clock.Now()}
		for i := range n {
			r := l.row(l.rows + i)
			r.At = step.At
			step.Rows = append(step.Rows, r.Encode())
		}
		res, err := l.store.Apply(ctx, scope, step)
		require.NoError(l.t, err)
		require.True(l.t, res.Applied)
		l.rows += n
		l.clock.Advance(time.Duration(n) * spacing)
		for {
			done, err := l.sealer.Seal(ctx, scope, false)
			require.NoError(l.t, err)
			if done.Rows == 0 {
				break
			}
			h, _, err := l.reader.Head(ctx, scope)
			require.NoError(l.t, err)
			require.NoError(l.t, l.store.TrimRows(ctx, scope, h.Cursor))
		}
	}
}

// question is what is asked of the log; enough is how many rows answer it.
type question struct {
	name   string
	ask    func(l *long) (audit.Filter, trail.Page)
	enough int
}

func questions() []question {
	newest := trail.Page{Limit: 50, Newest: true}
	at := func(l *long) time.Time { return noon.Add(time.Duration(l.rng.IntN(l.rows)) * spacing) }
	some := func(l *long) audit.Row { return l.row(l.rng.IntN(l.rows)) }
	return []question{
		{"no filter", func(*long) (audit.Filter, trail.Page) { return audit.Filter{}, newest }, 50},
		{"common word (half the rows)", func(*long) (audit.Filter, trail.Page) { return audit.Filter{Event: audit.Claimed}, newest }, 50},
		{"common word, before any time", func(l *long) (audit.Filter, trail.Page) {
			return audit.Filter{Event: audit.Claimed, Until: at(l)}, newest
		}, 50},
		{"any hour, oldest first", func(l *long) (audit.Filter, trail.Page) {
			until := at(l).Add(time.Millisecond)
			return audit.Filter{Since: until.Add(-time.Hour), Until: until}, trail.Page{Limit: 50}
		}, 50},
		{"rare word (1 row in 10,000)", func(*long) (audit.Filter, trail.Page) { return audit.Filter{Event: audit.Held}, newest }, 5},
		{"one write (2 rows), anywhere", func(l *long) (audit.Filter, trail.Page) {
			return audit.Filter{ActionID: some(l).ActionID}, newest
		}, 1},
		{"one run's label (100 rows), anywhere", func(l *long) (audit.Filter, trail.Page) {
			return audit.Filter{Meta: some(l).Meta}, newest
		}, 50},
		{"absent word", func(l *long) (audit.Filter, trail.Page) {
			return audit.Filter{ActionID: fmt.Sprintf("act_none%d", l.rng.Uint64())}, newest
		}, 0},
	}
}

// answer asks until the question is answered: there is enough, or nothing more.
func (l *long) answer(q question) (pages []time.Duration, rows int) {
	f, p := q.ask(l)
	for {
		began := time.Now()
		got, next, err := l.log.Query(l.t.Context(), scope, f, p)
		pages = append(pages, time.Since(began))
		require.NoError(l.t, err)
		rows += len(got)
		if next == "" || q.enough > 0 && rows >= q.enough {
			return pages, rows
		}
		p.Cursor = next
	}
}

// TestPagesOfALongLog answers questions of a log that is sealed as it grows, and
// says how long a page takes; make bench-audit runs it over ten million rows.
func TestPagesOfALongLog(t *testing.T) {
	l := newLong(t)
	for length := range strings.SplitSeq(*benchRows, ",") {
		rows, err := strconv.Atoi(length)
		require.NoError(t, err)
		began := time.Now()
		l.grow(rows)
		h, _, err := l.reader.Head(t.Context(), scope)
		require.NoError(t, err)
		t.Logf("%d rows in %d segments and a tail of %d, written and sealed in %s", rows, h.Number, uint64(rows)-h.Seq, time.Since(began).Round(time.Second))
		l.log = trail.New(l.store, l.cold())
		for _, q := range questions() {
			var pages []time.Duration
			var most int
			var first time.Duration
			for range *benchTries {
				took, got := l.answer(q)
				if len(pages) == 0 {
					first = took[0]
				}
				pages = append(pages, took...)
				most = max(most, len(took))
				if q.enough > 0 {
					require.Positive(t, got, q.name)
				} else {
					require.Zero(t, got, q.name)
				}
			}
			slices.Sort(pages)
			at := func(share float64) time.Duration {
				return pages[int(share*float64(len(pages)-1))].Round(10 * time.Microsecond)
			}
			_, _ = fmt.Fprintf(os.Stderr, "| %d | %s | %s | %s | %s | %d |\n", rows, q.name, first.Round(10*time.Microsecond), at(0.5), at(0.99), most)
		}
	}
}

// cold is a reader that has seen nothing yet.
func (l *long) cold() *archive.Reader {
	fresh, err := archive.NewReader(l.store, l.sealer.Storage)
	require.NoError(l.t, err)
	return fresh
}
