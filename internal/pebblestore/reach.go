package pebblestore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// The end of a log tells nothing of what came behind it: one that was damaged
// there, or cut, looks as if a crash had come a little earlier, and the engine
// takes it for that. So does the end of its manifest. Therefore the store notes
// beside them how far both are known to reach, and does not open what reaches
// less far: once a second while there are writes, and when it is closed. What was
// written after the last note before a crash is covered by nothing but the
// checksums of the log.

const (
	// noteEvery is the time between two notes. Each syncs the folder.
	noteEvery = time.Second

	// reachMarker names the note. It is the name of an empty file, so that a note
	// can only be there or not, and it is replaced by the engine's own means.
	reachMarker = "acknowledged"
	// begunMarker names the note of which log was begun when. It changes with the log.
	begunMarker = "log-begun"
)

// reach is how far the files of a folder are known to reach.
type reach struct {
	next     uint64 // the sequence number that follows the last write that was synced
	manifest uint64 // the number of the manifest
	length   int64  // bytes of that manifest in whole records
}

func (r reach) String() string { return fmt.Sprintf("%d-%d-%d", r.next, r.manifest, r.length) }

func parseReach(s string) (r reach, ok bool) {
	parts := strings.Split(s, "-")
	if len(parts) != 3 {
		return reach{}, false
	}
	var errs [3]error
	r.next, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	r.manifest, errs[1] = strconv.ParseUint(parts[1], 10, 64)
	r.length, errs[2] = strconv.ParseInt(parts[2], 10, 64)
	return r, errors.Join(errs[:]...) == nil && r.String() == s
}

// begun is a log, and the sequence number of a write in it, or in a later one: what
// comes behind that write is not in the logs before. So whoever needs this log, and
// has it without anything in it, can tell whether something was.
type begun struct {
	log, first uint64
}

func (b begun) String() string { return fmt.Sprintf("%d-%d", b.log, b.first) }

func parseBegun(s string) (b begun, ok bool) {
	log, first, _ := strings.Cut(s, "-")
	var errs [2]error
	b.log, errs[0] = strconv.ParseUint(log, 10, 64)
	b.first, errs[1] = strconv.ParseUint(first, 10, 64)
	return b, errors.Join(errs[:]...) == nil && b.String() == s
}

// notes keeps the note of a folder.
type notes struct {
	fs     vfs.FS
	dir    string
	synced atomic.Uint64         // the highest next that was seen
	log    atomic.Uint64         // the log that was begun last
	first  atomic.Pointer[begun] // of the logs that something was seen in, the last

	mu        sync.Mutex // of what follows: one note at a time
	marker    *atomicfs.Marker
	logMarker *atomicfs.Marker
	begun     begun // as noted; zero: not yet
	noted     reach // zero: a folder that has no note yet
	size      int64 // of the manifest when it was last read
	failed    bool  // the last note could not be made, which was logged
}

// readNotes looks for the note of a folder. It is called with the folder locked.
func readNotes(fs vfs.FS, dir string) (_ *notes, err error) {
	n := &notes{fs: fs, dir: dir}
	var reaches, begins string
	if n.marker, reaches, err = atomicfs.LocateMarker(fs, dir, reachMarker); err != nil {
		return nil, fmt.Errorf("look for the note of what was acknowledged: %w", err)
	}
	if n.logMarker, begins, err = atomicfs.LocateMarker(fs, dir, begunMarker); err != nil {
		return nil, errors.Join(fmt.Errorf("look for the note of what was acknowledged: %w", err), n.marker.Close())
	}
	wellFormed := true
	if reaches != "" {
		n.noted, wellFormed = parseReach(reaches)
	}
	if begins != "" && wellFormed {
		n.begun, wellFormed = parseBegun(begins)
	}
	if !wellFormed {
		err := fmt.Errorf("%w: the note of what was acknowledged cannot be read", ErrDamaged)
		return nil, errors.Join(err, n.marker.Close(), n.logMarker.Close())
	}
	return n, nil
}

// saw notes that a batch is on disk, and with it all before it, in a log or a later
// one.
func (n *notes) saw(b *pebble.Batch, log uint64) {
	next := uint64(b.SeqNum()) + uint64(b.Count())
	for at := n.first.Load(); at == nil || log > at.log; at = n.first.Load() {
		if n.first.CompareAndSwap(at, &begun{log, uint64(b.SeqNum())}) {
			break
		}
	}
	for seen := n.synced.Load(); next > seen && !n.synced.CompareAndSwap(seen, next); seen = n.synced.Load() {
	}
}

// write makes a new note if there is something to say.
func (n *notes) write() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := reach{next: max(n.noted.next, n.synced.Load())}
	if err := n.measure(&r); err != nil {
		return err
	}
	if at := n.first.Load(); at != nil && *at != n.begun {
		if err := n.logMarker.Move(at.String()); err != nil {
			return fmt.Errorf("note what was acknowledged: %w", err)
		}
		n.begun = *at
	}
	if r == n.noted {
		return nil
	}
	if err := n.marker.Move(r.String()); err != nil {
		return fmt.Errorf("note what was acknowledged: %w", err)
	}
	n.noted = r
	return nil
}

// measure finds out how far the manifest reaches on disk. The engine may be
// writing to it, so whole records are counted, and they are synced again: some
// may be on their way only.
func (n *notes) measure(r *reach) error {
	number, path, err := manifestOf(n.fs, n.dir)
	if err != nil {
		return err
	}
	f, err := n.fs.Open(path)
	if err != nil {
		return fmt.Errorf("measure manifest: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("measure manifest: %w", err)
	}
	r.manifest, r.length = number, n.noted.length
	if number == n.noted.manifest && info.Size() == n.size {
		return nil
	}
	r.length = readManifest(f).end
	n.size = info.Size()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync manifest: %w", err)
	}
	return nil
}

// manifestOf is the number and the path of the manifest in use.
func manifestOf(fs vfs.FS, dir string) (uint64, string, error) {
	found, err := pebble.Peek(dir, fs)
	if err != nil {
		return 0, "", fmt.Errorf("look for the manifest: %w", err)
	}
	if !found.Exists {
		return 0, "", nil
	}
	_, digits, _ := strings.Cut(fs.PathBase(found.ManifestFilename), "-")
	number, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("look for the manifest: %w", err)
	}
	return number, found.ManifestFilename, nil
}

// startNotes writes the note at each tick until the function it returns is
// called, which waits for the one in hand.
func (s *Store) startNotes(ticks <-chan time.Time) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			case <-s.failure.ch:
				return
			case <-ticks:
				s.note()
			}
		}
	}()
	return func() {
		close(end)
		select {
		case <-done:
		case <-s.failure.ch: // it may be held inside the engine
		}
	}
}

// note writes the note. One that cannot be written leaves the last one standing,
// which says less and nothing wrong.
func (s *Store) note() {
	err := s.guard(s.notes.write)
	switch {
	case err == nil:
		s.notes.failed = false
	case !s.notes.failed && s.failure.err() == nil:
		s.notes.failed = true
		s.log.Warn("cannot note how far the log reaches; damage at its end would not be noticed", "error", err)
	}
}
