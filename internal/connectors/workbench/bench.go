package workbench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/manifest"
)

// Bench lints and tests manifests. It may be used from many goroutines.
type Bench struct{ compiler *manifest.Compiler }

// New makes a Bench. It fails only if this release is broken.
func New() (*Bench, error) {
	c, err := manifest.NewCompiler()
	if err != nil {
		return nil, err
	}
	return &Bench{compiler: c}, nil
}

// Subject is a manifest with its fixtures.
type Subject struct {
	File         string
	Manifest     []byte
	FixturesFile string // where they lie, or should
	Fixtures     []byte // nil: there are none
}

// connectorFile is what a manifest is called in a folder of connectors.
const connectorFile = "connector.yaml"

// FixturesFile says where the fixtures of a manifest lie.
func FixturesFile(manifestFile string) string {
	dir, base := filepath.Split(manifestFile)
	if base == connectorFile {
		return dir + "fixtures.yaml"
	}
	return dir + strings.TrimSuffix(base, filepath.Ext(base)) + ".fixtures.yaml"
}

// Find reads the manifests that paths name: a file, or every connector.yaml in
// and below a folder. Where a folder has none, its own .yaml files are taken.
func Find(paths []string) ([]Subject, error) {
	var list []Subject
	for _, path := range paths {
		files, err := manifestsIn(path)
		if err != nil {
			return nil, fmt.Errorf("find manifests: %w", err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("find manifests: there is no %s in or below %s", connectorFile, path)
		}
		for _, file := range files {
			s := Subject{File: file, FixturesFile: FixturesFile(file)}
			if s.Manifest, err = os.ReadFile(file); err != nil {
				return nil, fmt.Errorf("read manifest: %w", err)
			}
			if s.Fixtures, err = os.ReadFile(s.FixturesFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("read fixtures: %w", err)
			}
			list = append(list, s)
		}
	}
	return list, nil
}

func manifestsIn(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && d.Name() == connectorFile {
			files = append(files, file)
		}
		return nil
	})
	if err != nil || len(files) > 0 {
		return files, err
	}
	files, err = filepath.Glob(filepath.Join(path, "*.yaml"))
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "fixtures.yaml") }), err
}

// Lint says everything that is wrong with a manifest: what the gateway would
// refuse, what is allowed and seldom meant, and rules that no fixture shows.
func (b *Bench) Lint(ctx context.Context, s Subject) []Finding {
	c, advice, err := b.compiler.Advise(s.Manifest)
	if err != nil {
		return findingsOf(s.File, err)
	}
	list := fromProblems(s.File, advice)
	f, err := s.fixtures()
	if err != nil {
		list = append(list, findingsOf(s.FixturesFile, err)...)
		f = &Fixtures{}
	}
	_, lines, _ := manifest.ReadYAML(s.Manifest)
	for _, p := range f.Uncovered(ctx, c) {
		p.Line = lineOf(lines, p.Pointer)
		list = append(list, fromProblems(s.File, []connectors.ManifestProblem{p})...)
	}
	sortFindings(list)
	return list
}

func (s Subject) fixtures() (*Fixtures, error) {
	if s.Fixtures == nil {
		return nil, errNoFixtures
	}
	return ReadFixtures(s.FixturesFile, s.Fixtures)
}

// Test runs a manifest's fixtures and plays the faults of a vendor against each
// of its actions, over the real wire.
func (b *Bench) Test(ctx context.Context, s Subject) []Finding {
	c, err := b.compiler.Compile(s.Manifest)
	if err != nil {
		return findingsOf(s.File, err)
	}
	f, err := s.fixtures()
	if err != nil {
		return findingsOf(s.FixturesFile, err)
	}
	list := f.Run(ctx, c)
	if len(list) > 0 {
		sortFindings(list)
		return list // the faults are played with the fixtures
	}
	return b.Faults(ctx, c, f)
}

// Compile compiles a manifest as the gateway does.
func (b *Bench) Compile(raw []byte) (connectors.Connector, error) { return b.compiler.Compile(raw) }
