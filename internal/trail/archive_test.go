package trail_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/trail"
)

// shelf is an archive in memory: segments that a test seals, removes, damages.
type shelf struct {
	store  ledger.Store
	parts  []part
	kept   uint64           // number of the first segment that is kept
	onHead func()           // before each answer
	broken map[uint64]error // what reading a segment fails with
	opened int              // segments read
}

type part struct {
	entry archive.Entry
	rows  []archive.Row
	terms map[string]bool
}

func newShelf(store ledger.Store) *shelf {
	return &shelf{store: store, kept: 1, broken: map[uint64]error{}}
}

// seal makes a segment of the next rows, n at most.
func (s *shelf) seal(t require.TestingT, n int) {
	h, _, _ := s.head()
	found, err := s.store.Rows(context.Background(), scope, ledger.RowRange{After: h.Cursor, Limit: n})
	require.NoError(t, err)
	if len(found) == 0 {
		return
	}
	p := part{terms: map[string]bool{}, entry: archive.Entry{
		Number: h.Number + 1, First: h.Seq + 1, Last: h.Seq + uint64(len(found)),
		From: found[0].At, To: found[len(found)-1].At, Cursor: found[len(found)-1].Cursor,
	}}
	for i, r := range found {
		p.rows = append(p.rows, archive.Row{Row: r, Seq: p.entry.First + uint64(i), Hash: archive.Hash{byte(i)}})
		row, err := audit.Decode(r.Data)
		if err != nil {
			continue
		}
		audit.EachTerm(row, func(term []byte) { p.terms[string(term)] = true })
	}
	s.parts = append(s.parts, p)
}

// trim takes what is sealed out of the store, except the last few rows.
func (s *shelf) trim(t require.TestingT, leave int) {
	h, _, _ := s.head()
	if i := int(h.Seq) - 1 - leave; i >= 0 && h.Seq > 0 {
		for _, p := range s.parts {
			for _, r := range p.rows {
				if int(r.Seq) == i+1 {
					require.NoError(t, s.store.TrimRows(context.Background(), scope, r.Cursor))
				}
			}
		}
	}
}

func (s *shelf) head() (archive.Head, bool, error) {
	if len(s.parts) == 0 {
		return archive.Head{}, false, nil
	}
	last := s.parts[len(s.parts)-1].entry
	return archive.Head{Tenant: "acme", Number: last.Number, Seq: last.Last, Cursor: last.Cursor, Kept: archive.Kept{Number: s.kept}}, true, nil
}

func (s *shelf) Head(_ context.Context, of ledger.Scope) (archive.Head, bool, error) {
	if s.onHead != nil {
		s.onHead()
	}
	if of != scope {
		return archive.Head{}, false, nil
	}
	return s.head()
}

func (s *shelf) Entries(_ context.Context, of ledger.Scope, r archive.Range) (out []archive.Entry, _ error) {
	if of != scope {
		return nil, nil
	}
	for i, p := range s.parts {
		e := p.entry
		before := ""
		if i > 0 {
			before = s.parts[i-1].entry.Cursor
		}
		behind := r.After == "" || !r.Newest && e.Cursor > r.After || r.Newest && before < r.After // one too many, as the real one
		if e.Number >= s.kept && e.Number > r.Behind && behind && (r.From.IsZero() || !e.To.Before(r.From)) && (r.To.IsZero() || e.From.Before(r.To)) {
			out = append(out, e)
		}
	}
	if r.Newest {
		slices.Reverse(out)
	}
	return out[:min(len(out), r.Limit)], nil
}

func (s *shelf) MayHold(_ context.Context, e archive.Entry, terms []string) (bool, error) {
	for _, term := range terms {
		if !s.parts[e.Number-1].terms[term] {
			return false, nil
		}
	}
	return true, nil
}

func (s *shelf) Rows(_ context.Context, e archive.Entry) ([]archive.Row, error) {
	s.opened++
	if err := s.broken[e.Number]; err != nil {
		return nil, err
	}
	return s.parts[e.Number-1].rows, nil
}

func (s *shelf) Text(_ context.Context, e archive.Entry) ([]byte, error) {
	if err := s.broken[e.Number]; err != nil {
		return nil, err
	}
	s.opened++
	p := s.parts[e.Number-1]
	text := archive.Header{Type: "segment", V: 1, Tenant: "acme", Scope: archive.ScopeID(scope), Number: e.Number, First: e.First, From: archive.Time{Time: e.From}}.Line()
	for _, r := range p.rows {
		text = append(text, r.SealedLine()...)
	}
	return append(text, e.Checkpoint(scope, "acme").Line()...), nil
}

// Whatever happens to the rows between two pages, the pages show what was there
// when the walk began, each row once, in order, and what came behind it.
func TestPagesAreStableWhileRowsMove(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		store, clock := openStore(t)
		shelf := newShelf(store)
		between := &faulty{Store: store} // the head and the rows
		log := trail.New(between, shelf)
		n := 0
		grow := func() {
			for range rapid.IntRange(0, min(6, 40-n)).Draw(rt, "grow") {
				n++
				event := audit.Claimed
				if n%3 == 0 {
					event = audit.Held
				}
				require.NoError(rt, log.Append(t.Context(), scope, audit.Row{Event: event, ActionID: fmt.Sprint("act_", n)}))
				clock.Advance(time.Duration(rapid.IntRange(0, 2).Draw(rt, "ms")) * time.Millisecond)
			}
		}
		move := func() {
			grow()
			for range rapid.IntRange(0, 2).Draw(rt, "seals") {
				shelf.seal(rt, rapid.IntRange(1, 5).Draw(rt, "size"))
			}
			if rapid.Bool().Draw(rt, "trim") {
				shelf.trim(rt, rapid.IntRange(0, 3).Draw(rt, "leave"))
			}
		}
		move()
		filter := audit.Filter{}
		if rapid.Bool().Draw(rt, "filtered") {
			filter.Event = audit.Held
		}
		want := func(n int) (ids []string) {
			for i := 1; i <= n; i++ {
				if filter.Event == "" || i%3 == 0 {
					ids = append(ids, fmt.Sprint(i))
				}
			}
			return ids
		}
		page := trail.Page{Limit: rapid.IntRange(1, 4).Draw(rt, "limit"), Newest: rapid.Bool().Draw(rt, "newest")}
		first := n
		var got []string
		for {
			if rapid.IntRange(0, 3).Draw(rt, "within") == 0 {
				between.rows = func(ledger.RowRange) {
					between.rows = nil
					shelf.seal(rt, 2)
					shelf.trim(rt, 0)
				}
			}
			entries, next, err := log.Query(t.Context(), scope, filter, page)
			require.NoError(rt, err)
			got = append(got, ids(entries)...)
			if next == "" {
				break
			}
			page.Cursor = next
			move()
		}
		if page.Newest {
			slices.Reverse(got)
			require.Equal(rt, want(first), got)
			return
		}
		require.GreaterOrEqual(rt, len(got), len(want(first)))
		require.Equal(rt, want(n)[:len(got)], got)
	})
}

// sealed is a log of seven rows: two segments of three, which the store has let
// go, and a tail of one.
func sealed(t *testing.T) (*trail.Log, *shelf) {
	store, clock := openStore(t)
	shelf := newShelf(store)
	log := trail.New(store, shelf)
	for _, r := range numbered(1, 7) {
		put(t, log, r)
		clock.Advance(time.Second)
	}
	shelf.seal(t, 3)
	shelf.seal(t, 3)
	shelf.trim(t, 0)
	return log, shelf
}

func TestSegmentsWithoutTheTermsStayClosed(t *testing.T) {
	log, shelf := sealed(t)
	require.Equal(t, [][]string{{"2"}}, all(t, log, audit.Filter{ActionID: "act_2"}, trail.Page{Limit: 5}))
	require.Equal(t, 1, shelf.opened)
	require.Equal(t, [][]string{{"2"}}, all(t, log, audit.Filter{ActionID: "act_2"}, trail.Page{Limit: 5, Newest: true}))
	require.Equal(t, 2, shelf.opened)
	require.Equal(t, [][]string{nil}, all(t, log, audit.Filter{ActionID: "act_9"}, trail.Page{Limit: 5, Newest: true}))
	require.Equal(t, 2, shelf.opened)

	require.Equal(t, [][]string{{"5", "6", "7"}}, all(t, log, audit.Filter{Since: noon.Add(4 * time.Second)}, trail.Page{Limit: 5}))
	require.Equal(t, 3, shelf.opened, "nor those of another time")
}

// A segment that is damaged is shown, once, and hides nothing else.
func TestADamagedSegmentIsShownNotHidden(t *testing.T) {
	for number, want := range map[uint64]string{1: "? 4 5 6 7", 2: "1 2 3 ? 7"} {
		for limit := 1; limit <= 8; limit++ {
			log, shelf := sealed(t)
			shelf.broken[number] = fmt.Errorf("read: %w", archive.ErrDamaged)
			forward := damaged(t, log, trail.Page{Limit: limit})
			require.Equal(t, want, strings.Join(forward, " "), limit)
			backward := damaged(t, log, trail.Page{Limit: limit, Newest: true})
			slices.Reverse(backward)
			require.Equal(t, want, strings.Join(backward, " "), "newest first, %d", limit)
		}
	}
}

func damaged(t *testing.T, log *trail.Log, p trail.Page) (out []string) {
	t.Helper()
	for range 20 {
		entries, next, err := log.Query(t.Context(), scope, audit.Filter{}, p)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Unreadable {
				e.ActionID = "?"
				require.False(t, e.At.IsZero())
			}
			out = append(out, strings.TrimPrefix(e.ActionID, "act_"))
		}
		if p.Cursor = next; next == "" {
			return out
		}
	}
	require.Fail(t, "it has no end")
	return nil
}

// What retention takes away while somebody reads is gone, and no damage.
func TestASegmentThatIsLetGoMeanwhileIsNoDamage(t *testing.T) {
	for _, newest := range []bool{false, true} {
		log, shelf := sealed(t)
		shelf.broken[1] = fmt.Errorf("read: %w", archive.ErrDamaged)
		left := 3
		if newest {
			left = 4
		}
		shelf.onHead = func() { // after the segments were listed
			if left--; left == 0 {
				shelf.kept = 2
			}
		}
		got := damaged(t, log, trail.Page{Limit: 10, Newest: newest})
		slices.Sort(got)
		require.Contains(t, []string{"4 5 6 7", "4 5 6 7 ?"}, strings.Join(got, " "))
	}
}

func TestAnArchiveThatDoesNotAnswerIsNoDamage(t *testing.T) {
	log, shelf := sealed(t)
	shelf.broken[1] = context.DeadlineExceeded
	_, _, err := log.Query(t.Context(), scope, audit.Filter{}, trail.Page{Limit: 10})
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.NotErrorIs(t, err, archive.ErrDamaged)
}
