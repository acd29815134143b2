package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// errLogLost stops the engine while it is opened, before it has changed anything.
var errLogLost = fmt.Errorf("%w: a log was cut or removed", ErrDamaged)

// closedLogs is a file system on which a log can be opened only if those opened
// before it end as logs end that were closed, if it goes on where they end, and the
// last only if all of them together reach as far as was noted. The engine reads logs
// when it is opened, those it needs, in their order; all but the last were closed by
// it. It notices one that ends within a record, and not one that was cut between two,
// or that is not there. What is missing has to show here: when it is open, the engine
// has made tables of what there was, and its count of keys goes on from what its
// manifest knew of, which is not less than the logs had when it was last written.
type closedLogs struct {
	vfs.FS
	notes  *notes
	logs   wal.Logs   // that there are
	before *logFile   // the last that was opened
	needed wal.NumWAL // the first that was opened
	next   uint64     // what follows the last write before the log to come; 0: that is not known
}

// checkLogs makes the file system the engine is to be opened on.
func (n *notes) checkLogs(m said) (*closedLogs, error) {
	logs, err := wal.Scan(wal.Dir{FS: n.fs, Dirname: n.dir})
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	c := &closedLogs{FS: n.fs, notes: n, logs: logs}
	if last := c.last(); uint64(last) < n.begun.log {
		return nil, errLogLost
	}
	if _, ok := logs.Get(wal.NumWAL(m.needed)); !ok {
		// It is the number of a log that was still to be begun when the manifest was
		// written, and got a later one. All that came then is in the logs behind it.
		c.next = m.next
		for _, log := range logs {
			if n := uint64(log.Num); m.needed < n && n < m.files {
				return nil, errLogLost // no, it was there, and so was a later one
			}
		}
	}
	if c.next != 0 && uint64(c.last()) < m.needed {
		return c, n.checkNext(m.needed, c.next)
	}
	return c, nil
}

// last is the newest log; 0: there is none.
func (c *closedLogs) last() wal.NumWAL {
	if len(c.logs) == 0 {
		return 0
	}
	return c.logs[len(c.logs)-1].Num
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
	log, ok := c.logs.Get(num)
	if !ok {
		return nil // begun by the engine
	}
	// Where it cannot be read is for the engine to judge.
	c.before = readLog(path, log, c.next)
	if errors.Is(c.before.err, errLogLost) {
		return errLogLost
	}
	c.next = max(c.next, c.before.next)
	if num != c.last() {
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

// logFile is a log as it was read.
type logFile struct {
	path string
	num  wal.NumWAL
	end  int64  // of its last whole record
	next uint64 // the sequence number that follows that; 0: there is none
	err  error  // why it could not be read any further
}

// readLog reads a log to its end. It goes on with a sequence number, if that is
// known; the engine gives out each, and writes it to a log.
func readLog(path string, log wal.LogicalLog, next uint64) *logFile {
	l := &logFile{path: path, num: log.Num}
	r := log.OpenForRead()
	defer func() { _ = r.Close() }() // it was only read
	for {
		rec, offset, err := r.NextRecord()
		if errors.Is(err, io.EOF) {
			l.end = offset.Physical
			return l
		}
		var first, behind uint64
		if err == nil {
			first, behind, err = numbersOf(rec)
		}
		if err == nil && next != 0 && first > next {
			err = errLogLost
		}
		if err != nil {
			l.err = err
			return l
		}
		l.next, next = behind, behind
	}
}

// numbersOf reads a record of a log, which begins with the sequence number of its
// first key and how many keys there are.
func numbersOf(rec io.Reader) (first, next uint64, err error) {
	var head [8 + 4]byte
	if _, err := io.ReadFull(rec, head[:]); err != nil {
		return 0, 0, err
	}
	_, err = io.Copy(io.Discard, rec)
	first = binary.LittleEndian.Uint64(head[:])
	return first, first + uint64(binary.LittleEndian.Uint32(head[8:])), err
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
