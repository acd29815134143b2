package benchtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"holdfast.dev/gateway/internal/pebblestore"
)

// embeddedContests hold pairs of a claim and its settle, each synced, with their
// audit rows, against appending as many bytes to a file.
func embeddedContests(short bool) []Entry {
	var all []Entry
	for _, number := range fewer(short, 16, 64, 256) {
		name := fmt.Sprintf("embedded pairs, %d callers", number)
		all = append(all, Entry{Name: name, Open: func(t testing.TB, b *Bench) Contest {
			c, err := openEmbedded(t.Context(), b, number)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c.Name = name
			return c
		}})
	}
	return all
}

func openEmbedded(ctx context.Context, b *Bench, number int) (Contest, error) {
	dir, err := os.MkdirTemp(b.Dir, "pairs")
	if err != nil {
		return Contest{}, err
	}
	e, err := newStoreFolder(ctx, filepath.Join(dir, "store"), shape{}, pebblestore.Options{})
	if err != nil {
		return Contest{}, err
	}
	claim, settle, err := e.frames(ctx, 100)
	if err != nil {
		return Contest{}, errors.Join(err, e.store.Close())
	}
	log, err := newRawLog(filepath.Join(dir, "log"))
	if err != nil {
		return Contest{}, errors.Join(err, e.store.Close())
	}
	first, second := noise(claim), noise(settle)
	named := func(what string) string { return fmt.Sprintf("%s, %d callers", what, number) }
	return Contest{
		Contestants: []Contestant{
			{Name: "store", Round: b.byCallers(number, e.writes.pair)},
			{Name: "raw log", Round: b.byCallers(number, func(context.Context) error {
				return errors.Join(log.append(first), log.append(second))
			})},
		},
		Figures: []Figure{
			{Name: named(fmt.Sprintf("embedded pairs of claim and settle ÷ a raw log with the same frames (%d and %d B)", claim, settle)), Unit: "/s", Goal: AtLeast(0.90), Of: Ratio("store", "raw log", "per_s")},
			{Name: named("– processor time of a pair"), Unit: "µs", Of: Ratio("store", "raw log", "cpu_us")},
			{Name: named("– p99 of a pair"), Unit: "ms", Of: Ratio("store", "raw log", "p99_ms")},
		},
		Close: func() {
			_ = e.store.Close()
			_ = log.close()
			_ = os.RemoveAll(dir)
		},
	}, nil
}

// storeFolder is a store in a folder, and the writes that go to it.
type storeFolder struct {
	dir    string
	store  *pebblestore.Store
	writes *writes
}

func newStoreFolder(ctx context.Context, dir string, sh shape, opts pebblestore.Options) (*storeFolder, error) {
	s, err := pebblestore.Open(dir, opts)
	if err != nil {
		return nil, err
	}
	w, err := newWrites(ctx, s, sh)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &storeFolder{dir: dir, store: s, writes: w}, nil
}

// frames is how many bytes a claim and a settle append to the store's own log.
func (e *storeFolder) frames(ctx context.Context, of int) (claim, settle int, err error) {
	var begun []write
	before := e.logs()
	for range of {
		x, err := e.writes.claim(ctx)
		if err != nil {
			return 0, 0, err
		}
		begun = append(begun, x)
	}
	claims := e.logs()
	for _, x := range begun {
		if err := e.writes.settle(ctx, x); err != nil {
			return 0, 0, err
		}
	}
	return int(claims-before) / of, int(e.logs()-claims) / of, nil
}

// logs is how much there is in all logs, without the zeros behind it.
func (e *storeFolder) logs() (size int64) {
	names, _ := filepath.Glob(filepath.Join(e.dir, "*.log"))
	for _, name := range names {
		raw, _ := os.ReadFile(name) // one that is removed meanwhile counts nothing
		size += int64(len(bytes.TrimRight(raw, "\x00")))
	}
	return size
}

// folderSize is what the files below a folder hold, or those whose names end so.
// A file that goes meanwhile is not counted.
func folderSize(dir, suffix string) (size int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || suffix != "" && filepath.Ext(path) != suffix {
			return nil //nolint:nilerr // what has gone takes no room
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}
