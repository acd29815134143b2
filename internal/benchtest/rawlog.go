package benchtest

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"sync"
	"syscall"
)

// rawLog is the floor under any store that promises what ours does: frames are
// appended to one file, and everyone who waits at the same time shares one sync.
// It keeps no index, so nothing can be found in it again.
type rawLog struct {
	file *os.File

	mu      sync.Mutex
	full    *sync.Cond // signalled when a group has been synced
	pending []byte
	spare   []byte
	group   uint64 // the one that frames are being added to
	synced  uint64 // the last one on disk
	syncing bool
	failed  error
}

func newRawLog(path string) (*rawLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := &rawLog{file: f, group: 1}
	l.full = sync.NewCond(&l.mu)
	return l, nil
}

// append adds a frame and returns when it is on disk. Whoever finds nobody
// syncing does it for all that have come until then.
func (l *rawLog) append(body []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = binary.LittleEndian.AppendUint32(l.pending, uint32(len(body)))
	l.pending = binary.LittleEndian.AppendUint32(l.pending, crc32.ChecksumIEEE(body))
	l.pending = append(l.pending, body...)
	mine := l.group
	for l.synced < mine && l.failed == nil {
		if l.syncing {
			l.full.Wait()
			continue
		}
		l.sync()
	}
	return l.failed
}

// sync writes what is pending, without the lock while the disk is busy.
func (l *rawLog) sync() {
	l.syncing = true
	out, group := l.pending, l.group
	l.pending, l.group = l.spare[:0], l.group+1
	l.mu.Unlock()
	_, err := l.file.Write(out)
	err = errors.Join(err, syscall.Fdatasync(int(l.file.Fd())))
	l.mu.Lock()
	l.spare, l.syncing = out, false
	if err != nil {
		l.failed = err
	}
	l.synced = group
	l.full.Broadcast()
}

func (l *rawLog) close() error { return l.file.Close() }
