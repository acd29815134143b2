package pebblestore_test

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// oldScopes are those of a folder of format 1: some with entries, one without, and
// the first and the last that there can be.
func oldScopes() []ledger.Scope {
	last := ledger.Scope{}
	for i := range last {
		last[i] = 0xff
	}
	return []ledger.Scope{ledger.Platform, scope, ledger.ScopeOf("beta"), ledger.ScopeOf("empty"), last}
}

// oldMembers is how many each index of such a scope has. Of one they are so many that
// they go as one range.
func oldMembers(sc ledger.Scope) int {
	switch sc {
	case ledger.ScopeOf("beta"):
		return 9
	case ledger.ScopeOf("empty"):
		return 0
	default:
		return 3
	}
}

// formatOne fills a folder as a release of format 1 left it, and returns how many
// members it has.
func formatOne(t *testing.T, fs vfs.FS, clock *fakeClock) (members int) {
	t.Helper()
	s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: fs, Clock: clock.Now}, nil)
	require.NoError(t, err)
	for _, sc := range oldScopes() {
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: s.Now(),
			Put:  []ledger.Put{put("stays", "data"), put("ends", "data"), put("ends too", "data")},
			Rows: [][]byte{[]byte("row")},
		}
		step.Put[1].Expires = s.Now().Add(time.Hour)
		step.Put[2].Expires = step.Put[1].Expires
		for i := range oldMembers(sc) {
			e := ledger.Entry{Score: s.Now().Add(time.Duration(i) * time.Second), Member: fmt.Sprint("\xff", i)}
			for _, e.Index = range []ledger.Index{ledger.ByLease, ledger.ByCreated} {
				step.Index = append(step.Index, e)
			}
		}
		res, err := s.Apply(t.Context(), sc, step)
		require.NoError(t, err)
		require.True(t, res.Applied)
	}
	s.RawEachNoteApart(t)
	members = s.RawIndexApart(t)
	require.Equal(t, 3*6+18, members)
	require.NoError(t, s.Flush())
	require.NoError(t, s.Close())
	return members
}

// inFolder is the format that a folder says it is of, and how many members of that
// format it has.
func inFolder(t *testing.T, fs vfs.FS) (format uint32, members int) {
	t.Helper()
	db, err := pebble.Open("store", &pebble.Options{FS: fs, Logger: quiet{}})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	raw, closer, err := db.Get(pebblestore.FormatKey())
	require.NoError(t, err)
	format = binary.BigEndian.Uint32(raw)
	require.NoError(t, closer.Close())
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{pebblestore.TagScope}})
	require.NoError(t, err)
	for ok := iter.First(); ok; ok = iter.Next() {
		if iter.Key()[17] == pebblestore.TagMember {
			members++
		}
	}
	require.NoError(t, iter.Close())
	return format, members
}

// expectUpgraded opens a folder that was of format 1 and looks whether all that was
// there is, and works.
func expectUpgraded(t *testing.T, fs vfs.FS, clock *fakeClock) {
	t.Helper()
	ticks := make(chan time.Time)
	s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: fs, Clock: clock.Now}, ticks)
	require.NoError(t, err)
	for _, sc := range oldScopes() {
		snap, err := s.Read(t.Context(), sc, ledger.Fetch{Key: key("stays")}, ledger.Fetch{Key: key("ends")}, ledger.Fetch{Key: key("ends too")})
		require.NoError(t, err)
		require.Len(t, snap.Values, 3)
		rows, err := s.Rows(t.Context(), sc, ledger.RowRange{Limit: 9})
		require.NoError(t, err)
		require.Len(t, rows, 1)
		for _, index := range []ledger.Index{ledger.ByLease, ledger.ByCreated} {
			entries, err := s.Entries(t.Context(), sc, ledger.EntryRange{Index: index, Limit: 9})
			require.NoError(t, err)
			if sc == ledger.ScopeOf("empty") {
				require.Empty(t, entries)
				continue
			}
			require.Len(t, entries, oldMembers(sc))
			moved := entries[0]
			moved.Score = moved.Score.Add(time.Hour)
			res, err := s.Apply(t.Context(), sc, ledger.Step{
				Nonce: ledger.NewNonce(), At: s.Now(), Unindex: entries, Index: []ledger.Entry{moved},
			})
			require.NoError(t, err)
			require.True(t, res.Applied)
			entries, err = s.Entries(t.Context(), sc, ledger.EntryRange{Index: index, Limit: 9})
			require.NoError(t, err)
			require.Equal(t, []ledger.Entry{moved}, entries)
		}
	}
	for notes := s.RawKeys(pebblestore.TagExpiry); notes > 0; notes = s.RawKeys(pebblestore.TagExpiry) {
		require.Equal(t, 2*len(oldScopes()), notes)
		clock.Advance(time.Hour)
		ticks <- time.Time{}
		ticks <- time.Time{}
		clock.Advance(-time.Hour)
	}
	require.NoError(t, s.Close())
	format, members := inFolder(t, fs)
	require.Equal(t, uint32(2), format)
	require.Zero(t, members)
}

func TestAFolderOfFormat1IsUpgraded(t *testing.T) {
	fs := vfs.NewMem()
	clock := newFakeClock()
	members := formatOne(t, fs, clock)
	format, found := inFolder(t, fs)
	require.Equal(t, uint32(1), format)
	require.Equal(t, members, found)
	expectUpgraded(t, fs, clock)
}

func TestCheckLeavesTheFormat(t *testing.T) {
	fs := vfs.NewMem()
	members := formatOne(t, fs, newFakeClock())
	require.NoError(t, pebblestore.Check(t.Context(), "store", pebblestore.Options{FS: fs, Clock: newFakeClock().Now}))
	format, found := inFolder(t, fs)
	require.Equal(t, uint32(1), format)
	require.Equal(t, members, found)
}

func TestCheckFindsAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, pebblestore.Options{})
	require.ErrorIs(t, pebblestore.Check(t.Context(), dir, pebblestore.Options{}), pebblestore.ErrInUse)
}

func TestAFolderOfNoKnownFormatIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, "store", pebblestore.Options{FS: fs})
	require.NoError(t, s.RawSet(pebblestore.FormatKey(), []byte{0, 0, 0, 0}))
	require.NoError(t, s.Close())
	_, err := pebblestore.Open("store", pebblestore.Options{FS: fs})
	require.ErrorIs(t, err, ledger.ErrCorrupt)
}

// TestACrashInAnUpgrade takes the power away before every change of the disk that an
// upgrade makes, and behind the last. What is left is the one format or the other,
// and goes on.
func TestACrashInAnUpgrade(t *testing.T) {
	mem := vfs.NewCrashableMem()
	clock := newFakeClock()
	all := formatOne(t, mem, clock)

	var mu sync.Mutex
	var left []*vfs.MemFS
	// All or nothing of what is not synced: of a mixture the engine itself can be
	// left without the manifest that its marker names.
	take := func() { left = append(left, crash(mem, len(left)%2*100, 1)) }
	watched := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			mu.Lock()
			defer mu.Unlock()
			take()
		}
		return nil
	}))
	s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: watched, Clock: clock.Now}, nil)
	require.NoError(t, err)
	mu.Lock()
	for range 2 {
		take()
	}
	points := left
	mu.Unlock()
	require.NoError(t, s.Close())

	seen := map[uint32]int{}
	for _, fs := range points {
		format, members := inFolder(t, fs)
		seen[format]++
		switch format {
		case 1:
			require.Equal(t, all, members, "of the first format, as it was")
		case 2:
			require.Zero(t, members)
		default:
			t.Fatal(format)
		}
		expectUpgraded(t, fs, clock)
	}
	require.Greater(t, seen[1], 10)
	require.GreaterOrEqual(t, seen[2], 2)
	t.Log(seen)
}
