package archivetest

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/ledger"
)

func trimming(f *fixture) {
	s := f.sealer(f.Store, f.storage)
	f.write(f.Store, 9)
	f.sealAll(s)
	require.NoError(f, s.MaintainScope(f.Context(), f.scope))
	require.Len(f, f.hot(), 9, "they are not old")
	f.advance(hot)
	f.write(f.Store, 5)
	require.NoError(f, s.MaintainScope(f.Context(), f.scope))
	require.Len(f, f.hot(), 5, "those that are not sealed stay, and new ones")
	f.sealAll(s)
	f.whole(1)

	// The archive lost a segment after it was recorded: its rows stay.
	f.advance(2 * hot)
	name := f.entries()[3].Object.Name
	var kept []byte
	f.storage.Damage(name, func(data []byte) []byte { kept = bytes.Clone(data); return nil })
	require.ErrorIs(f, s.MaintainScope(f.Context(), f.scope), archive.ErrDamaged)
	require.Len(f, f.hot(), 5)
	report, err := f.reader().Verify(f.Context(), f.scope)
	require.NoError(f, err)
	require.False(f, report.Whole())
	require.Equal(f, uint64(9), report.Proven)
	f.storage.Damage(name, func([]byte) []byte { kept[0] ^= 1; return kept })
	require.ErrorIs(f, s.MaintainScope(f.Context(), f.scope), archive.ErrDamaged)
	require.Len(f, f.hot(), 5)
	f.storage.Damage(name, func(data []byte) []byte { data[0] ^= 1; return data })
	require.NoError(f, s.MaintainScope(f.Context(), f.scope))
	require.Empty(f, f.hot())
	f.whole(1)
	f.write(f.Store, 1)
	f.sealAll(s)
	f.whole(1)
}

var errAway = errors.New("the archive is away")

func failingArchive(f *fixture) {
	b := archive.NewBacklog(cut(), 20)
	store := b.Watch(f.Store)
	s := f.sealerWith(f.Store, f.storage, b)
	f.write(store, 4)
	require.NoError(f, s.Round(f.Context()))
	require.Len(f, f.entries(), 1)

	f.storage.Fail(func(string, string) error { return errAway })
	f.write(store, 19)
	require.ErrorIs(f, s.Round(f.Context()), errAway)
	require.NoError(f, b.Room(), "writes go on")
	rows, oldest := b.Unsealed()
	require.Equal(f, int64(19), rows)
	require.False(f, oldest.IsZero())
	f.write(store, 1)
	err := b.Room()
	require.ErrorIs(f, err, ledger.ErrNotReady)
	require.ErrorContains(f, err, "20 audit rows wait to be archived")
	require.ErrorContains(f, err, "the archive is away")

	// A process that starts now finds out how many there are.
	again := archive.NewBacklog(cut(), 20)
	restarted := f.sealerWith(f.Store, f.storage, again)
	require.NoError(f, restarted.Scan(f.Context(), 0))
	require.NoError(f, again.Room())
	f.advance(2 * time.Minute)
	require.ErrorIs(f, restarted.Round(f.Context()), errAway)
	require.ErrorIs(f, again.Room(), ledger.ErrNotReady)

	f.storage.Fail(nil)
	for _, s := range []*archive.Sealer{s, restarted} {
		f.advance(2 * time.Minute)
		require.NoError(f, s.Round(f.Context()))
	}
	require.NoError(f, b.Room(), "writes go on by themselves")
	require.NoError(f, again.Room())
	rows, oldest = b.Unsealed()
	require.Zero(f, rows)
	require.True(f, oldest.IsZero())
	f.whole(1)
}

func retention(f *fixture) {
	s := f.sealer(f.Store, f.storage)
	f.keep = 30 * 24 * time.Hour
	f.write(f.Store, 6)
	f.sealAll(s)
	f.advance(20 * 24 * time.Hour)
	f.write(f.Store, 3)
	f.sealAll(s)
	mark := f.entries()[2].Checkpoint(f.scope, f.tenant)
	// What a sealer stored that died goes with the segments of its number.
	require.NoError(f, f.storage.Put(f.Context(), strings.Replace(f.entries()[0].Object.Name, "-", "-dead", 1), []byte("x")))
	objects := len(f.storage.Names())
	require.NoError(f, s.MaintainScope(f.Context(), f.scope))
	require.Len(f, f.entries(), 3)

	f.advance(11 * 24 * time.Hour)
	require.NoError(f, s.MaintainScope(f.Context(), f.scope))
	require.Len(f, f.entries(), 1)
	require.Len(f, f.storage.Names(), objects-5)
	f.whole(7)
	report, err := f.reader().Verify(f.Context(), f.scope)
	require.NoError(f, err)
	require.Equal(f, uint64(7), report.Begins)
	require.Equal(f, uint64(3), mark.Segment)
	f.write(f.Store, 2)
	f.sealAll(s)
	f.whole(7)
}

func finalSegment(f *fixture) {
	s := f.sealer(f.Store, f.storage)
	f.keep = 30 * 24 * time.Hour
	f.write(f.Store, 6)
	for range 2 {
		done, err := s.Seal(f.Context(), f.scope, true)
		require.NoError(f, err)
		require.Equal(f, done.Rows == 2, done.Final)
	}
	done, err := s.Seal(f.Context(), f.scope, true)
	require.NoError(f, err)
	require.True(f, done.Final)
	require.Len(f, f.entries(), 2, "it ends once")
	report, err := f.reader().Verify(f.Context(), f.scope)
	require.NoError(f, err)
	require.True(f, report.Final)
	f.whole(1)

	f.gone, f.keep = true, 0
	f.advance(29 * 24 * time.Hour)
	require.NoError(f, s.Maintain(f.Context()))
	f.whole(1)
	require.Empty(f, f.hot())
	f.advance(2 * 24 * time.Hour)
	require.NoError(f, s.Maintain(f.Context()))
	require.Empty(f, f.entries())
	require.Equal(f, []string{"archive-id"}, f.storage.Names())
	_, ok, err := f.reader().Head(f.Context(), f.scope)
	require.NoError(f, err)
	require.False(f, ok, "nothing is left of it")
	left, err := f.Store.Entries(f.Context(), ledger.Platform, ledger.EntryRange{Index: ledger.ByArchive, Limit: 10})
	require.NoError(f, err)
	require.Empty(f, left)
}

func ranges(f *fixture) {
	s := f.sealer(f.Store, f.storage)
	for range 9 {
		f.write(f.Store, 4)
		f.sealAll(s)
	}
	all := f.entries()
	require.Len(f, all, 9)
	hot := f.hot()
	numbers := func(rg archive.Range) (out []uint64) {
		if rg.Limit == 0 {
			rg.Limit = 100
		}
		found, err := f.reader().Entries(f.Context(), f.scope, rg)
		require.NoError(f, err)
		for _, e := range found {
			out = append(out, e.Number)
		}
		return out
	}
	require.Equal(f, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}, numbers(archive.Range{}))
	require.Equal(f, []uint64{9, 8, 7, 6, 5, 4, 3, 2, 1}, numbers(archive.Range{Newest: true}))
	require.Equal(f, []uint64{9, 8}, numbers(archive.Range{Newest: true, Limit: 2}))
	require.Equal(f, []uint64{1, 2}, numbers(archive.Range{Limit: 2}))
	require.Equal(f, []uint64{3, 4}, numbers(archive.Range{After: all[1].Cursor, Limit: 2}))
	require.Equal(f, []uint64{2, 3}, numbers(archive.Range{After: hot[5].Cursor, Limit: 2}))
	require.Equal(f, []uint64{2, 1}, numbers(archive.Range{After: hot[5].Cursor, Newest: true}))
	require.Equal(f, []uint64{3, 2, 1}, numbers(archive.Range{After: hot[8].Cursor, Newest: true}), "its first row is behind")
	require.Empty(f, numbers(archive.Range{After: all[8].Cursor}))
	for i, e := range all {
		require.Equal(f, []uint64{e.Number}, numbers(archive.Range{From: e.From, To: e.To.Add(time.Millisecond)}))
		require.Len(f, numbers(archive.Range{From: e.From}), 9-i)
		require.Len(f, numbers(archive.Range{To: e.From}), i)
	}
	require.Empty(f, numbers(archive.Range{From: all[8].To.Add(time.Hour)}))
	require.Empty(f, numbers(archive.Range{To: all[0].From.Add(-time.Hour)}))
}

func foreignArchive(f *fixture) {
	f.write(f.Store, 4)
	f.sealAll(f.sealer(f.Store, f.storage))
	f.write(f.Store, 4)
	mine := f.storage
	f.storage = NewMemory()
	_, err := f.sealer(f.Store, f.storage).Seal(f.Context(), f.scope, false)
	require.ErrorIs(f, err, archive.ErrForeign)
	require.Empty(f, f.storage.Names())
	f.storage = mine
	f.sealAll(f.sealer(f.Store, f.storage))
	f.whole(1)
}

// An archive may also go while the gateway runs: what is in its place then, such
// as the empty folder below a mount that went, is not filled.
func archiveThatGoes(f *fixture) {
	s := f.sealer(f.Store, f.storage)
	f.write(f.Store, 4)
	f.sealAll(s)
	away := map[string][]byte{}
	for _, name := range f.storage.Names() {
		f.storage.Damage(name, func(data []byte) []byte {
			away[name] = data
			return nil
		})
	}
	f.write(f.Store, 4)
	_, err := s.Seal(f.Context(), f.scope, false)
	require.ErrorIs(f, err, archive.ErrForeign)
	require.Empty(f, f.storage.Names())
	require.Len(f, f.entries(), 1, "nothing was recorded")
	for name, data := range away {
		f.storage.Damage(name, func([]byte) []byte { return data })
	}
	f.sealAll(s)
	f.whole(1)
}

func scanned(f *fixture) {
	f.write(f.Store, 5)
	b := archive.NewBacklog(cut(), 0)
	s := f.sealerWith(f.Store, f.storage, b)
	require.NoError(f, s.Round(f.Context()))
	require.Empty(f, f.entries(), "nobody knows of the rows")
	require.NoError(f, s.Scan(f.Context(), 0))
	f.advance(2 * time.Minute)
	require.NoError(f, s.Round(f.Context()))
	f.whole(1)
	rows, _ := b.Unsealed()
	require.Zero(f, rows)

	f.write(f.Store, 1)
	f.gone = true // and so is its tenant
	require.NoError(f, s.Scan(f.Context(), 0))
	f.advance(2 * time.Minute)
	require.NoError(f, s.Round(f.Context()))
	f.whole(1)
}
