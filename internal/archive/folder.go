package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Folder is a Storage in a folder. Everything in it is for the owner alone.
type Folder struct{ root string }

// NewFolder makes the folder if it does not exist.
func NewFolder(path string) (*Folder, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find archive folder: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make archive folder: %w", err)
	}
	return &Folder{root: path}, nil
}

func (f *Folder) String() string { return "folder " + f.root }

// path refuses a name that would leave the folder.
func (f *Folder) path(name string) (string, error) {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		return "", errors.New("not the name of an object")
	}
	return filepath.Join(f.root, local), nil
}

// Put writes beside the object and renames, each synced, so that an object is
// there whole or not at all, also after a crash.
func (f *Folder) Put(ctx context.Context, name string, data []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, err := f.path(name)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := f.makeDir(dir); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, tempPrefix+"*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return syncDir(dir)
}

// tempPrefix begins the names of files that are no objects yet.
const tempPrefix = ".new-"

func (f *Folder) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(f.root)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Get reads an object.
func (f *Folder) Get(ctx context.Context, name string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	path, err := f.path(name)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoObject
	}
	return data, err
}

// Delete removes an object, and its folder when it was the last one there.
func (f *Folder) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, err := f.path(name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if dir := filepath.Dir(path); dir != f.root {
		_ = os.Remove(dir) // refused while something is in it
	}
	return nil
}

// List reads the one folder that the prefix names: names have at most one slash.
func (f *Folder) List(ctx context.Context, prefix string, limit int) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, base := "", prefix
	if slash := strings.LastIndexByte(prefix, '/'); slash >= 0 {
		dir, base = prefix[:slash+1], prefix[slash+1:]
	}
	path, err := f.path(dir + ".")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasPrefix(e.Name(), base) && !strings.HasPrefix(e.Name(), tempPrefix) {
			names = append(names, dir+e.Name())
		}
	}
	slices.Sort(names)
	return names[:min(len(names), limit)], nil
}
