package pebblestore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
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
func (n *notes) checkFolder() error {
	number, path, err := manifestOf(n.fs, n.dir)
	if err != nil {
		return err
	}
	if number == 0 {
		return n.checkNew()
	}
	if number > n.noted.manifest {
		return nil // begun after the note, whole
	}
	if number < n.noted.manifest {
		return lossError("T", "its manifest is older than it was, and tables with acknowledged writes may be missing")
	}
	f, err := n.fs.Open(path)
	if err != nil {
		return engineError(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if reaches := wholeRecords(f); reaches < n.noted.length {
		return lossError("T", "its manifest can be read up to byte %d of %d, and tables with acknowledged writes may be missing",
			reaches, n.noted.length)
	}
	return nil
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

// errLogLost stops the engine while it is opened, before it has changed anything.
var errLogLost = fmt.Errorf("%w: a log was cut or removed", ErrDamaged)

// closedLogs is a file system on which a log can be opened only if those opened
// before it end as logs end that were closed, and the last only if all of them
// together reach as far as was noted. The engine reads logs when it is opened, those
// it needs, in their order; all but the last were closed by it. It notices one that
// ends within a record, and not one that was cut between two. What is missing has to
// show here: when it is open, the engine has made tables of what there was, and its
// count of keys goes on from what its manifest knew of, which is not less than the
// logs had when it was last written.
type closedLogs struct {
	vfs.FS
	notes  *notes
	last   wal.NumWAL // that there is
	before *logFile   // the last that was opened
	needed wal.NumWAL // the first that was opened
	next   uint64     // what follows the last write of all that were opened
}

// logFile is a log as it was read.
type logFile struct {
	path string
	num  wal.NumWAL
	end  int64  // of its last whole record
	next uint64 // the sequence number that follows that; 0: there is none
	err  error  // why it could not be read any further
}

// checkLogs makes the file system the engine is to be opened on.
func (n *notes) checkLogs() (*closedLogs, error) {
	logs, err := wal.Scan(wal.Dir{FS: n.fs, Dirname: n.dir})
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	c := &closedLogs{FS: n.fs, notes: n}
	if len(logs) > 0 {
		c.last = logs[len(logs)-1].Num
	}
	if uint64(c.last) < n.begun.log {
		return nil, errLogLost
	}
	return c, nil
}

func (c *closedLogs) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if strings.HasSuffix(name, ".log") {
		if err := c.check(name); err != nil {
			return nil, err
		}
	}
	return c.FS.Open(name, opts...)
}

func (c *closedLogs) check(path string) error {
	if c.before != nil {
		if err := c.before.checkClosed(c.FS); err != nil {
			return err
		}
	}
	num, _, ok := wal.ParseLogFilename(c.PathBase(path))
	if !ok {
		return nil
	}
	if c.before == nil {
		c.needed = num
	}
	// Where it cannot be read is for the engine to judge.
	log := readLog(c.FS, path, num)
	c.before, c.next = log, max(c.next, log.next)
	if num != c.last {
		return nil
	}
	return c.notes.checkNext(uint64(c.needed), c.next)
}

// checkNext compares where the logs that are needed end with the note. If there is
// something in them, it comes behind all that is in tables. If not, that can be so
// because all was written to tables, unless the log that was noted is among them.
func (n *notes) checkNext(needed, next uint64) error {
	if next >= n.noted.next || next == 0 && (n.begun.log < needed || n.begun.first >= n.noted.next) {
		return nil
	}
	return errLogLost
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

// Unwrap is how the engine finds the disk beneath.
func (c *closedLogs) Unwrap() vfs.FS { return c.FS }

// The mark at the end of a closed log is the header of an empty chunk that bears
// the number of the log to come: checksum(4) size(2) type(1) number(4). Chunks
// do not cross blocks, and what is left of a block that has no room for the header
// of a chunk stays empty. That header is longer than the mark, except in the log
// that the engine begins a new folder with.
const (
	logBlock       = 32 << 10
	logHeader      = 19
	logTrailer     = 11
	logTrailerType = 5
)

func (l *logFile) checkClosed(disk vfs.FS) error {
	name := disk.PathBase(l.path)
	if l.err != nil {
		return fmt.Errorf("read log %s: %w", name, l.err)
	}
	f, err := disk.Open(l.path)
	if err != nil {
		return fmt.Errorf("read log %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	places := []int64{l.end}
	if left := logBlock - l.end%logBlock; left < logHeader {
		places = append(places, l.end+left)
	}
	for _, at := range places {
		mark := make([]byte, logTrailer)
		if _, err := f.ReadAt(mark, at); err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read log %s: %w", name, err)
		}
		if mark[6] == logTrailerType && binary.LittleEndian.Uint32(mark[7:]) == uint32(l.num)+1 {
			return nil
		}
	}
	return fmt.Errorf("%w: log %s was cut at byte %d; put a copy of the folder back", ErrDamaged, name, l.end)
}

// readLog reads a log to its end.
func readLog(disk vfs.FS, path string, num wal.NumWAL) *logFile {
	l := &logFile{path: path, num: num}
	logs, err := wal.Scan(wal.Dir{FS: disk, Dirname: disk.PathDir(path)})
	log, ok := logs.Get(num)
	if err != nil || !ok {
		l.err = cmp.Or(err, ErrDamaged)
		return l
	}
	r := log.OpenForRead()
	defer func() { _ = r.Close() }() // it was only read
	for {
		rec, offset, err := r.NextRecord()
		if errors.Is(err, io.EOF) {
			l.end = offset.Physical
			return l
		}
		var next uint64
		if err == nil {
			next, err = nextOf(rec)
		}
		if err != nil {
			l.err = err
			return l
		}
		l.next = next
	}
}

// nextOf reads a record of a log, which begins with the sequence number of its first
// key and how many keys there are.
func nextOf(rec io.Reader) (uint64, error) {
	var head [8 + 4]byte
	if _, err := io.ReadFull(rec, head[:]); err != nil {
		return 0, err
	}
	_, err := io.Copy(io.Discard, rec)
	return binary.LittleEndian.Uint64(head[:]) + uint64(binary.LittleEndian.Uint32(head[8:])), err
}
