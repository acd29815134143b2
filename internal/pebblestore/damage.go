package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// ErrDamaged means that files of the folder were damaged, cut or removed, so that
// writes that were acknowledged are not all there.
var ErrDamaged = errors.New("the store folder is damaged")

// lossError is what a folder is refused with that the engine could open. Loss of
// it may be accepted, from a time on.
func lossError(from, format string, args ...any) error {
	return fmt.Errorf("%w: %s; put a copy of the folder back, or go on without them: `gateway store accept-loss --from %s`",
		ErrDamaged, fmt.Sprintf(format, args...), from)
}

// engineError marks what the engine refuses as damage.
func engineError(err error) error {
	if errors.Is(err, ErrDamaged) {
		return err
	}
	if pebble.IsCorruptionError(err) || errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "size mismatch") {
		return fmt.Errorf("%w: %w; put a copy of the folder back", ErrDamaged, err)
	}
	return err
}

// checkFolder compares the manifest with the note before the engine opens the
// folder: it takes a manifest that is not there for a new folder, and the readable
// beginning of a damaged one for all of it; and then it removes what that does
// not name.
func (n *notes) checkFolder() (said, error) {
	number, path, err := manifestOf(n.fs, n.dir)
	if err != nil {
		return said{}, err
	}
	if number == 0 {
		return said{}, n.checkNew()
	}
	if number < n.noted.manifest {
		return said{}, lossError("T", "its manifest is older than it was, and tables with acknowledged writes may be missing")
	}
	f, err := n.fs.Open(path)
	if err != nil {
		return said{}, engineError(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	m := readManifest(f)
	if number == n.noted.manifest && m.end < n.noted.length { // a later one was begun after the note, whole
		return said{}, lossError("T", "its manifest can be read up to byte %d of %d, and tables with acknowledged writes may be missing",
			m.end, n.noted.length)
	}
	return m, nil
}

// checkNew refuses to make a store where one was.
func (n *notes) checkNew() error {
	names, err := n.fs.List(n.dir)
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	for _, name := range names {
		if n.noted != (reach{}) || strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".sst") {
			return fmt.Errorf("%w: its manifest is gone, though there are files of a store; put a copy of the folder back", ErrDamaged)
		}
	}
	return nil
}

// checkReach compares what the engine has opened with the note. A batch that
// writes to the log alone is given the sequence number that comes next.
func (n *notes) checkReach(db *pebble.DB) error {
	b := db.NewBatch()
	defer func() { _ = b.Close() }()
	if err := b.LogData([]byte("open"), nil); err != nil {
		return err
	}
	if err := db.Apply(b, pebble.NoSync); err != nil {
		return err
	}
	next := uint64(b.SeqNum())
	if next >= n.noted.next {
		return nil
	}
	from, err := lossFrom(db)
	if err != nil {
		return err
	}
	return lossError(from, "its log ends %d keys before the last write that was acknowledged", n.noted.next-next)
}

// logLoss is the loss of what was in the logs. It began no earlier than the clock's
// last mark in what is left, less what that runs ahead.
func (n *notes) logLoss(o *pebble.Options) error {
	look := o.Clone()
	look.FS, look.ReadOnly, look.Experimental.CompactionScheduler = n.fs, true, nil
	from := "T"
	if db, err := pebble.Open(n.dir, look); err == nil {
		from, err = lossFrom(db)
		if err := errors.Join(err, db.Close()); err != nil {
			return err
		}
	}
	return lossError(from, "its log ends before the last write that was acknowledged")
}

func lossFrom(db *pebble.DB) (string, error) {
	from := "T"
	_, err := view(db, keyHighWater, func(raw []byte) error {
		if ms, ok := decodeMillis(raw); ok {
			from = fromMillis(ms).Add(-markAhead).Truncate(time.Second).Format(time.RFC3339)
		}
		return nil
	})
	return from, err
}
