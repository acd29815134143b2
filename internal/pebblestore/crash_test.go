package pebblestore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// A crash keeps everything that was synced and some of what was not, block by
// block. The worst is that it keeps nothing more; the oddest is a mixture.
var crashes = map[string]int{"nothing unsynced survives": 0, "some unsynced survives": 50, "all unsynced survives": 100}

func crash(fs *vfs.MemFS, percent int, seed uint64) *vfs.MemFS {
	return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, 1))})
}

func TestAnAppliedStepSurvivesACrash(t *testing.T) {
	for name, percent := range crashes {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			s := open(t, "store", pebblestore.Options{FS: fs})
			e := ledger.Entry{Index: ledger.ByName, Score: s.Now(), Member: "m"}
			must(t, s, ledger.Step{
				Put:   []ledger.Put{put("a", "one")},
				Add:   []ledger.Add{{Key: key("n"), Delta: 7}},
				Index: []ledger.Entry{e},
				Rows:  [][]byte{[]byte("row")},
			})
			after := open(t, "store", pebblestore.Options{FS: crash(fs, percent, 1)})
			got, _ := get(t, after, "a")
			require.Equal(t, "one", got)
			n, _ := get(t, after, "n")
			require.Equal(t, "7", n)
			require.Len(t, allRows(t, after), 1)
			entries, err := after.Entries(t.Context(), scope, ledger.EntryRange{Index: ledger.ByName, Limit: 9})
			require.NoError(t, err)
			require.Len(t, entries, 1)
		})
	}
}

// TestCrashesUnderLoad takes the power away again and again while callers work.
// Each step puts a value, adds to a counter and appends a row of the same name,
// so after every crash the three must agree, and hold whatever had been
// answered.
func TestCrashesUnderLoad(t *testing.T) {
	fs := vfs.NewCrashableMem()
	clock := newFakeClock()
	s, err := pebblestore.OpenSmall("store", pebblestore.Options{FS: fs, Clock: clock.Now})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	const callers, each, crashesTaken = 8, 25, 15

	var mu sync.Mutex
	answered := map[string]time.Time{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("%d/%03d", c, i)
				at, ok := applyLoaded(s, clock, name)
				if !ok {
					return
				}
				if i%4 == 0 { // what a note says must hold after any crash
					assert.NoError(t, s.Note())
				}
				mu.Lock()
				answered[name] = at
				mu.Unlock()
			}
		})
	}
	for i := range crashesTaken {
		mu.Lock()
		promised := make(map[string]time.Time, len(answered))
		for name, at := range answered {
			promised[name] = at
		}
		mu.Unlock()
		checkAfterCrash(t, crash(fs, (i%3)*50, uint64(i)), promised)
	}
	wg.Wait()
	require.Len(t, answered, callers*each)
	checkAfterCrash(t, crash(fs, 0, 99), answered)
}

// applyLoaded makes one step of the load. The callers move the clock for each
// other, so a step may find that it believes in a time long past.
func applyLoaded(s *pebblestore.Store, clock *fakeClock, name string) (time.Time, bool) {
	for {
		clock.Advance(7 * time.Millisecond)
		step := claim(s, name)
		step.Add = []ledger.Add{{Key: key("count"), Delta: 1}}
		res, err := s.Apply(context.Background(), scope, step)
		if err != nil || res.Applied {
			return res.Now, err == nil
		}
	}
}

func checkAfterCrash(t *testing.T, fs *vfs.MemFS, promised map[string]time.Time) {
	t.Helper()
	// The machine comes back with its clock where the test began.
	s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: fs, Clock: newFakeClock().Now}, nil)
	if err != nil && len(promised) == 0 {
		return // before the store was even made
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	started := s.Now()

	rows := allRows(t, s)
	found := map[string]bool{}
	for i, r := range rows {
		found[string(r.Data)] = true
		value, exists := get(t, s, string(r.Data))
		require.True(t, exists, "a row without its value")
		require.Equal(t, "value of "+string(r.Data), value)
		require.False(t, r.At.After(started), "time goes back behind a row")
		if i > 0 {
			require.Less(t, rows[i-1].Cursor, r.Cursor)
			require.False(t, r.At.Before(rows[i-1].At))
		}
	}
	require.Len(t, found, len(rows), "a row twice")
	for name := range promised {
		require.True(t, found[name], "a step that was answered is gone")
	}
	count, exists := get(t, s, "count")
	require.Equal(t, len(rows) > 0, exists)
	if exists {
		require.Equal(t, fmt.Sprint(len(rows)), count)
	}

	// It goes on from there: the next row stands behind all others.
	must(t, s, ledger.Step{Rows: [][]byte{[]byte("next")}})
	rows = allRows(t, s)
	require.Equal(t, "next", string(rows[len(rows)-1].Data))
}

func TestAnotherProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, pebblestore.Options{})
	out := child(t, "open", dir, nil)
	require.Contains(t, out, "in use by another gateway process")
	require.Contains(t, out, dir)

	_, err := pebblestore.Open(dir, pebblestore.Options{})
	require.ErrorIs(t, err, pebblestore.ErrInUse)

	require.NoError(t, s.Close())
	require.Equal(t, "opened\n", child(t, "open", dir, nil))
}

func TestAKilledProcessLeavesItsStepsAndNoLock(t *testing.T) {
	dir := t.TempDir()
	out := child(t, "write", dir, func() {
		_, err := pebblestore.Open(dir, pebblestore.Options{})
		require.ErrorIs(t, err, pebblestore.ErrInUse)
	})
	require.Equal(t, "applied <nil>\n", out)
	s := open(t, dir, pebblestore.Options{})
	got, _ := get(t, s, "from the child")
	require.Equal(t, "value of from the child", got)
	require.Len(t, allRows(t, s), 1)
}

// A step that does not fit half of the engine's memory table takes another way
// to disk.
func TestAStepLargerThanAMemoryTableSurvivesACrash(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s, err := pebblestore.OpenSmall("store", pebblestore.Options{FS: fs})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	big := strings.Repeat("0123456789abcdef", 1<<16)
	must(t, s, ledger.Step{Put: []ledger.Put{put("a", big)}, Rows: [][]byte{[]byte("row")}})
	must(t, s, claim(s, "b"))
	after := open(t, "store", pebblestore.Options{FS: crash(fs, 0, 1)})
	got, _ := get(t, after, "a")
	require.True(t, big == got)
	require.Len(t, allRows(t, after), 2)
}

func TestLogsNameNoKeysAndNoData(t *testing.T) {
	logs, logger := newLogged()
	fs := vfs.NewMem()
	s := open(t, "store", pebblestore.Options{FS: fs, Logger: logger})
	for range 3 {
		must(t, s, ledger.Step{Put: []ledger.Put{put("secret-id", strings.Repeat("secret-data", 99))}})
		require.NoError(t, s.Flush())
	}
	require.NoError(t, s.Close())
	open(t, "store", pebblestore.Options{FS: fs, Logger: logger})
	require.NotContains(t, logs.text(), "secret")
}
