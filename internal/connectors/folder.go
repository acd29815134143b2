package connectors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// MaxManifest is the largest manifest in bytes.
const MaxManifest = 256 << 10

// manifestFile is the name of a manifest in its version's folder.
const manifestFile = "connector.yaml"

// readFolder reads <dir>/<name>/<version>/connector.yaml. Names that begin with
// a dot are passed over: mounted volumes keep their own book there.
func readFolder(ctx context.Context, dir string) (sources []Source, problems []error) {
	if dir == "" {
		return nil, nil
	}
	names, err := subfolders(dir)
	if err != nil {
		return nil, []error{err}
	}
	for _, name := range names {
		versions, err := subfolders(filepath.Join(dir, name))
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, version := range versions {
			if ctx.Err() != nil {
				return sources, problems
			}
			file := filepath.Join(dir, name, version, manifestFile)
			manifest, err := readManifest(file)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			sources = append(sources, Source{File: file, Manifest: manifest, Name: name, Version: version})
		}
	}
	return sources, problems
}

// subfolders lists the folders in dir, links to folders included.
func subfolders(dir string) ([]string, error) {
	items, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read connectors folder: %w", err)
	}
	var names []string
	for _, item := range items {
		if strings.HasPrefix(item.Name(), ".") {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, item.Name()))
		if err != nil {
			return nil, fmt.Errorf("read connectors folder: %w", err)
		}
		if info.IsDir() {
			names = append(names, item.Name())
		}
	}
	return names, nil
}

func readManifest(file string) (manifest []byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	manifest, err = io.ReadAll(io.LimitReader(f, MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	if len(manifest) > MaxManifest {
		return nil, &ManifestError{File: file, Problems: []ManifestProblem{{Reason: "the file is larger than 256 KiB"}}}
	}
	return manifest, nil
}
