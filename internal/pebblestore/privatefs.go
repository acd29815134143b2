package pebblestore

import (
	"errors"
	"io"
	"os"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// privateFS is the disk with every folder and file made for the owner alone,
// whatever the umask. The files matter too: a folder may be a mounted volume
// whose mode is not ours to change, and files are copied out of it.
//
// While fresh is set, a file is not written over but made anew: what is behind
// the end of what was written would stay.
type privateFS struct {
	vfs.FS
	fresh *atomic.Bool
}

const (
	folderMode = 0o700
	fileMode   = 0o600
)

func (f privateFS) MkdirAll(dir string, _ os.FileMode) error { return f.FS.MkdirAll(dir, folderMode) }

func (f privateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return private(name)(f.FS.Create(name, category))
}

func (f privateFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if f.fresh.Load() {
		if err := f.FS.Remove(old); err != nil {
			return nil, err
		}
		return f.Create(name, category)
	}
	return private(name)(f.FS.ReuseForWrite(old, name, category))
}

func (f privateFS) Lock(name string) (io.Closer, error) {
	c, err := f.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(name, fileMode); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Unwrap is how the engine finds the disk beneath.
func (f privateFS) Unwrap() vfs.FS { return f.FS }

func private(name string) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		made, err := ahead(name, file)
		if err == nil {
			err = os.Chmod(name, fileMode)
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		return made, nil
	}
}
