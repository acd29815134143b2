package pebblestore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/pebblestore"
)

// TestDamageIsRefusedOrDoesNotMatter: bits flipped and files cut at many places,
// in each file of a folder. Nothing that was acknowledged is ever silently gone.
func TestDamageIsRefusedOrDoesNotMatter(t *testing.T) {
	t.Parallel()
	for name, whole := range states(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.False(t, whole.clone(t).check(t, "not damaged"))
			const places = 6
			refused, harmless := map[string]int{}, map[string]int{}
			count := func(file string, no bool) {
				kind := strings.Trim(file, "0123456789-.")
				if no {
					refused[kind]++
				} else {
					harmless[kind]++
				}
			}
			for _, file := range whole.files(t) {
				size := len(whole.bytes(t, file))
				for place := range min(places, size) {
					at := size * place / places
					flipped := whole.clone(t)
					flipped.bytes(t, file)[at] ^= 1 << (place % 8)
					count(file, flipped.check(t, fmt.Sprintf("%s flipped at byte %d of %d", file, at, size)))
					cut := whole.clone(t)
					cut.replace(t, file, append([]byte(nil), whole.bytes(t, file)[:at]...))
					count(file, cut.check(t, fmt.Sprintf("%s cut at byte %d of %d", file, at, size)))
				}
			}
			t.Logf("refused %v, whole %v", refused, harmless)
		})
	}
}

// TestACutBetweenTwoRecordsIsRefused: to the engine each of these ends is the end
// of a log.
func TestACutBetweenTwoRecordsIsRefused(t *testing.T) {
	t.Parallel()
	for name, whole := range states(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logs, err := wal.Scan(wal.Dir{FS: whole.fs, Dirname: "store"})
			require.NoError(t, err)
			cuts, refused := 0, 0
			for _, log := range logs {
				r := log.OpenForRead()
				for i := 0; ; i++ {
					_, offset, err := r.NextRecord()
					if err != nil {
						break
					}
					if i%3 != 0 {
						continue
					}
					file := fmt.Sprintf("%06d.log", log.Num)
					cut := whole.clone(t)
					cut.replace(t, file, append([]byte(nil), whole.bytes(t, file)[:offset.Physical]...))
					if cuts++; cut.check(t, fmt.Sprintf("%s cut before the record at %d", file, offset.Physical)) {
						refused++
					}
				}
				require.NoError(t, r.Close())
			}
			require.Positive(t, refused)
			t.Logf("%d of %d cuts refused, the others were in logs that are not needed", refused, cuts)
		})
	}
}

// A log that is gone is no log that was written to tables and removed, be it the
// last that is needed, the first, or one between.
func TestALogThatIsGoneIsRefused(t *testing.T) {
	t.Parallel()
	for name, whole := range states(t) {
		logs, err := wal.Scan(wal.Dir{FS: whole.fs, Dirname: "store"})
		require.NoError(t, err)
		require.NotEmpty(t, logs)
		refused := 0
		for i, log := range logs {
			file := fmt.Sprintf("%06d.log", log.Num)
			st := whole.clone(t)
			require.NoError(t, st.fs.Remove(st.fs.PathJoin("store", file)))
			if st.check(t, name+" without "+file) {
				require.True(t, st.check(t, name+" without "+file+", again"))
				refused++
			} else {
				require.Less(t, i, len(logs)-1, "%s without %s", name, file)
			}
		}
		if strings.HasPrefix(name, "killed while it flushed") {
			require.Greater(t, refused, 1, "several logs are needed")
		}
		t.Logf("%s: %d of %d", name, refused, len(logs))
	}
}

// TestLostMarkersAreRefused: which manifest is in use stands in the name of a
// file. Without it the engine would begin a new store in the same folder.
func TestLostMarkersAreRefused(t *testing.T) {
	t.Parallel()
	for name, whole := range states(t) {
		current, err := pebble.Peek("store", whole.fs)
		require.NoError(t, err)
		for _, file := range whole.files(t) {
			if strings.HasPrefix(file, "marker.manifest") || file == whole.fs.PathBase(current.ManifestFilename) {
				st := whole.clone(t)
				require.NoError(t, st.fs.Remove(st.fs.PathJoin("store", file)))
				require.True(t, st.check(t, name+" without "+file), file)
			}
		}
		st := whole.clone(t)
		for _, file := range whole.files(t) {
			if strings.HasPrefix(file, "marker.acknowledged") || strings.HasPrefix(file, "marker.manifest") {
				require.NoError(t, st.fs.Remove(st.fs.PathJoin("store", file)))
			}
		}
		require.True(t, st.check(t, name+" without any marker"))
	}
}

// TestALossCanBeAccepted: then the folder opens with what is left of it, and is
// held against that from then on.
func TestALossCanBeAccepted(t *testing.T) {
	t.Parallel()
	st := flushedLate(t)
	logs, err := wal.Scan(wal.Dir{FS: st.fs, Dirname: "store"})
	require.NoError(t, err)
	last := fmt.Sprintf("%06d.log", logs[len(logs)-1].Num)
	require.NotEmpty(t, st.bytes(t, last))
	st.replace(t, last, nil)
	require.True(t, st.check(t, "the last log is empty"))
	require.True(t, st.check(t, "the last log is empty, again"))
	_, err = pebblestore.OpenTicked("store", pebblestore.Options{FS: st.fs}, nil)
	require.ErrorIs(t, err, pebblestore.ErrDamaged)
	require.Regexp(t, "accept-loss --from [0-9]{4}-", err.Error())

	s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: st.fs, AcceptLoss: true}, nil)
	require.NoError(t, err)
	must(t, s, claim(s, "after the loss"))
	require.NoError(t, s.Close())
	s = open(t, "store", pebblestore.Options{FS: st.fs})
	_, exists := get(t, s, "after the loss")
	require.True(t, exists)
}
