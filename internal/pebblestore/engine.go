package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"holdfast.dev/gateway/internal/ledger"
)

const (
	// formatVersion is the version of the key layout and envelopes in keys.go
	// and envelope.go. Raise it when an older release could misread a newer
	// folder; upgrade.go brings those of earlier ones to it.
	formatVersion = 2

	// engineFormat is the engine's own file format. It is named, not "newest",
	// so that a new release of the engine does not silently make folders that
	// the last release of the gateway cannot open. From this one on, the log
	// tells a torn tail (a crash, harmless) from a damaged middle (refused), and
	// tables carry a checksum in their footer.
	engineFormat = pebble.FormatTableFormatV6

	// memTableSize is how much is gathered in memory before it becomes a table
	// file. A claim with its settlement is about 4 KB with keys, so 32 MB is
	// some 8,000 writes between flushes; replaying that much log at start takes
	// well under a second. At most memTables of them exist, and a stalled disk
	// then stops the writers, who time out.
	memTableSize = 32 << 20
	memTables    = 4

	// manifestSize is where a new manifest is begun. Some of it is read whenever it
	// has grown, to note how far it reaches; see reach.go.
	manifestSize = 1 << 20

	// engineMemory is what memory tables and decompressed blocks take together:
	// the engine takes the tables' room from its cache. As much as all tables
	// that may exist means that with one or two of them, as is usual, there are
	// 64 to 96 MB for blocks, and never more than this in all. A cache no larger
	// than one table would be none: each read of a table file, and with it each
	// claim of something new, would read and check the file's filter again.
	engineMemory = memTables * memTableSize

	// maxOpenFiles stays far below the usual limit of 1,024 descriptors, which
	// the gateway's connections need.
	maxOpenFiles = 256

	// diskSlow is when a write that is still going on is reported. It is the time
	// after which the gateway's callers give up, by default.
	diskSlow = 2 * time.Second

	// bitsPerKey of Bloom filter: most look-ups of a claim are for keys that do
	// not exist, and a filter of 10 bits answers 99 of 100 without a disk read.
	bitsPerKey = 10
)

// openEngine opens the engine in a folder and maps what can go wrong.
func (s *Store) openEngine(dir string, opts Options, tune []func(*pebble.Options)) (err error) {
	o := engineOptions(s)
	for _, f := range tune {
		f(o)
	}
	if o.FS = opts.FS; opts.FS == nil {
		abs, err := filepath.Abs(dir) // the engine's lock within a process is by name
		if err != nil {
			return err
		}
		dir = abs
		o.FS, s.health = vfs.WithDiskHealthChecks(privateFS{vfs.Default, &s.freshLogs}, diskSlow, nil, s.trouble.diskSlow)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release(), s.closeHealth())
		}
	}()
	if o.Lock, err = lockFolder(o.FS, dir); err != nil {
		return err
	}
	s.lock = o.Lock
	if s.notes, err = readNotes(o.FS, dir); err != nil {
		return err
	}
	db, err := s.openWhole(dir, o, opts.AcceptLoss)
	if err != nil {
		return err
	}
	if opts.FS == nil {
		// A folder that was there before may be open to others. It can belong to
		// another user (a mounted volume), and then its files are private still.
		_ = os.Chmod(dir, folderMode)
	}
	s.db = db
	s.trouble.opened.Store(true)
	s.compactions.begin()
	return nil
}

// openWhole opens the engine on a folder in which everything is that was
// acknowledged, or, if loss is accepted, on what there is.
func (s *Store) openWhole(dir string, o *pebble.Options, acceptLoss bool) (*pebble.DB, error) {
	db, err := s.openLogs(dir, o, acceptLoss)
	if errors.Is(err, errLogLost) {
		return nil, s.notes.logLoss(o)
	}
	if err != nil {
		return nil, engineError(err)
	}
	if err := s.notes.checkReach(db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// openLogs opens the engine on a manifest and logs that reach as far as was noted.
func (s *Store) openLogs(dir string, o *pebble.Options, acceptLoss bool) (*pebble.DB, error) {
	if acceptLoss {
		s.notes.noted, s.notes.begun = reach{}, begun{}
		return pebble.Open(dir, o)
	}
	manifest, err := s.notes.checkFolder()
	if err != nil {
		return nil, err
	}
	logs, err := s.notes.checkLogs(manifest)
	if err != nil {
		return nil, err
	}
	whole := *o
	whole.FS = logs
	return pebble.Open(dir, &whole)
}

func lockFolder(fs vfs.FS, dir string) (*pebble.Lock, error) {
	if err := fs.MkdirAll(dir, folderMode); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, lockError(err)
	}
	return lock, nil
}

// release lets go of the folder.
func (s *Store) release() (err error) {
	if s.notes != nil {
		err = errors.Join(s.notes.marker.Close(), s.notes.logMarker.Close())
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

func (s *Store) closeHealth() error {
	if s.health == nil {
		return nil
	}
	return s.health.Close()
}

// closeEngine releases the folder, unless the store has failed: then nobody may
// open it while this process still has work in it.
func (s *Store) closeEngine() error {
	select {
	case <-s.failure.ch:
		return nil
	default:
	}
	return errors.Join(s.guard(s.db.Close), s.release(), s.closeHealth())
}

// writeSync writes one value of the store's own to disk.
func (s *Store) writeSync(key, value []byte) error {
	b := s.db.NewBatch()
	if err := b.Set(key, value, nil); err != nil {
		return errors.Join(err, b.Close())
	}
	return s.write(b)
}

// write writes a batch of the store's own to disk. It takes the way of a group, on
// which a log that cannot be synced is an error.
func (s *Store) write(b *pebble.Batch) error {
	g := &group{store: s, batch: b}
	if err := g.append(); err != nil {
		return err
	}
	return g.wait(&commit{done: make(chan struct{})})
}

// writeClock writes where the clock stands, exactly.
func (s *Store) writeClock() error {
	now := s.clock.now().UnixMilli()
	if s.mark.pace != nil {
		if err := s.writeSync(keyPace, s.mark.pace(now)); err != nil {
			return err
		}
	}
	return s.writeSync(keyHighWater, encodeMillis(now))
}

func engineOptions(s *Store) *pebble.Options {
	o := &pebble.Options{
		Comparer:                    discreetComparer(),
		CacheSize:                   engineMemory,
		FormatMajorVersion:          engineFormat,
		MaxOpenFiles:                maxOpenFiles,
		MemTableSize:                memTableSize,
		MemTableStopWritesThreshold: memTables,
		MaxManifestFileSize:         manifestSize,
		Logger:                      engineLogger{s.log, s.failure},
		EventListener:               s.trouble.listener(),
	}
	o.Experimental.CompactionScheduler = s.compactions
	o.EventListener.WALCreated = func(info pebble.WALCreateInfo) { s.notes.log.Store(uint64(info.FileNum)) }
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(bitsPerKey)
	}
	return o
}

// lockError tells a folder that another process holds from everything else. The
// lock is refused with a bare errno, or a text when this process itself holds
// it; a failure to make the lock's file comes as a path error.
func lockError(err error) error {
	var path *fs.PathError
	var errno syscall.Errno
	switch {
	case errors.As(err, &path):
		return err
	case errors.As(err, &errno) && (errno == syscall.EAGAIN || errno == syscall.EACCES):
		return ErrInUse
	case err.Error() == "lock held by current process":
		return ErrInUse
	}
	return err
}

// prepare checks or writes the format marker, brings a folder of an earlier format
// to the present one unless it is to be kept, and returns the clock's persisted
// high-water mark, in milliseconds.
func (s *Store) prepare(keep bool) (int64, error) {
	format, ok, err := s.getRaw(keyFormat)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, s.create()
	}
	if len(format) != 4 {
		return 0, fmt.Errorf("read format: %w", ledger.ErrCorrupt)
	}
	switch v := binary.BigEndian.Uint32(format); {
	case v > formatVersion:
		return 0, ledger.NewerFormat(v, formatVersion)
	case v < 1:
		return 0, fmt.Errorf("read format: %w", ledger.ErrCorrupt)
	case v < formatVersion && !keep:
		if err := s.upgrade(); err != nil {
			return 0, fmt.Errorf("bring the folder from format %d to %d: %w", v, formatVersion, err)
		}
	}
	mark, ok, err := s.getRaw(keyHighWater)
	if err != nil || !ok {
		return 0, err
	}
	ms, ok := decodeMillis(mark)
	if !ok {
		return 0, fmt.Errorf("read clock mark: %w", ledger.ErrCorrupt)
	}
	return ms, nil
}

// create marks a new folder. One with keys but no marker is somebody else's.
func (s *Store) create() error {
	iter, err := s.db.NewIter(nil)
	if err != nil {
		return err
	}
	used := iter.First()
	if err := iter.Close(); err != nil {
		return err
	}
	if used {
		return fmt.Errorf("%w: the folder holds another program's data", ledger.ErrFormat)
	}
	return s.writeSync(keyFormat, binary.BigEndian.AppendUint32(nil, formatVersion))
}

// discreetComparer orders keys by their bytes, as the engine does by default and
// under the same name, but never spells one in a message: ids are the callers'.
func discreetComparer() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.FormatKey = func(key []byte) fmt.Formatter { return keyLength(len(key)) }
	return &c
}

type keyLength int

func (n keyLength) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "(key of %d bytes)", int(n)) }

// engineLogger passes the engine's messages on.
type engineLogger struct {
	log     *slog.Logger
	failure *failure
}

func (l engineLogger) Infof(format string, args ...any) {
	l.log.Debug("storage engine", "message", lazy{format, args})
}

func (l engineLogger) Errorf(format string, args ...any) {
	l.log.Error("storage engine", "message", lazy{format, args})
}

// Fatalf is called where the engine cannot go on: a log or manifest that cannot
// be written. The engine counts on this call not to return; were it to, a step
// whose commit just failed would be reported as done. The default ends the
// process. Here the store fails for good and the engine is held where it stands,
// with whatever locks it has, so that none of its background work goes on from
// a state that is not on disk. Callers are told at once, and calls to vendors
// that are under way can still end in order.
func (l engineLogger) Fatalf(format string, args ...any) {
	f := engineFailure{message: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			f.cause = err
		}
	}
	l.failure.set(f)
	select {}
}

// engineFailure is what the engine said when it gave up.
type engineFailure struct {
	message string
	cause   error
}

func (f engineFailure) Error() string { return f.message }
func (f engineFailure) Unwrap() error { return f.cause }

// lazy formats a message only if it is logged.
type lazy struct {
	format string
	args   []any
}

func (m lazy) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf(m.format, m.args...)) }
