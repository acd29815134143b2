package pebblestore

import (
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// logAhead is how much of a log file is written ahead of what is in it, with zeros.
// A sync of what lies within the file writes that and nothing else; one that makes
// the file longer has to write down where its end is, and waits for that too. What
// is ahead reads as the end of the log, as what a log was before it was used again
// does.
const logAhead = 256 << 10

// aheadLog is a log file that has its blocks before it needs them. The engine
// writes to it from one goroutine at a time, from its beginning on.
type aheadLog struct {
	vfs.File
	written, long int64
}

// ahead makes a file that is a log one.
func ahead(name string, f vfs.File) (vfs.File, error) {
	if !strings.HasSuffix(name, ".log") {
		return f, nil
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return &aheadLog{File: f, long: info.Size()}, nil
}

func (l *aheadLog) Write(p []byte) (int, error) {
	if need := l.written + int64(len(p)); need > l.long {
		l.lengthen(need + logAhead - need%logAhead)
	}
	n, err := l.File.Write(p)
	l.written += int64(n)
	return n, err
}

// lengthen is no more than an attempt: a disk that has no room for zeros may have
// some for what is to be written, and if not, that says so.
func (l *aheadLog) lengthen(to int64) {
	n, _ := l.File.WriteAt(make([]byte, to-l.long), l.long)
	if l.long += int64(n); l.long < to {
		l.long = to // not with each write again
	}
}
