package connectors

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
)

// entry is one loaded version.
type entry struct {
	file      string
	manifest  []byte
	connector Connector
	spec      Spec
	shared    bool // registered, hence kept already

	claimable atomic.Bool
	refused   atomic.Bool // contradicts what is kept for its pin
}

// snapshot is the set of loaded versions. Its maps never change.
type snapshot struct {
	bySum map[Sum]*entry
	byPin map[string][]*entry // ascending by version, never empty
}

// compileAll compiles every source. A source that fails is an error and leaves
// the others alone.
func compileAll(compile CompileFunc, sources []Source) (entries []*entry, problems []error) {
	for _, s := range sources {
		e, err := compileOne(compile, s)
		if err != nil {
			problems = append(problems, inFile(s.File, err))
			continue
		}
		entries = append(entries, e)
	}
	return entries, problems
}

func compileOne(compile CompileFunc, s Source) (*entry, error) {
	c, err := compile(s.Manifest)
	if err != nil {
		return nil, err
	}
	spec := c.Spec()
	if s.Name != "" && (spec.Name != s.Name || spec.Version != s.Version) {
		return nil, &ManifestError{Problems: []ManifestProblem{{
			Pointer: "/metadata", Reason: "the name and version differ from the folders, or the path, it lies under",
		}}}
	}
	if spec.Sum != sha256.Sum256(s.Manifest) {
		return nil, errors.New("the connector was not made from these bytes")
	}
	return &entry{file: s.File, manifest: s.Manifest, connector: c, spec: spec}, nil
}

// inFile puts the file's name into a manifest's problems.
func inFile(file string, err error) error {
	var bad *ManifestError
	if errors.As(err, &bad) {
		named := *bad
		named.File = file
		return &named
	}
	return fmt.Errorf("%s: %w", file, err)
}

// newSnapshot sorts entries by pin. One that contradicts another, or the
// version of the same major in the snapshot before, is an error and left out.
func newSnapshot(entries []*entry, before *snapshot) (*snapshot, []error) {
	snap := &snapshot{bySum: make(map[Sum]*entry), byPin: make(map[string][]*entry)}
	return snap, snap.fill(entries, before)
}

// fill adds what fits; it is for a snapshot that nobody reads yet.
func (s *snapshot) fill(entries []*entry, before *snapshot) (problems []error) {
	for _, e := range entries {
		if s.bySum[e.spec.Sum] != nil {
			continue // the same file twice, as when a built-in was copied
		}
		if err := s.fits(e, before); err != nil {
			problems = append(problems, inFile(e.file, &ManifestError{Problems: []ManifestProblem{{Reason: err.Error()}}}))
			continue
		}
		pin := e.spec.Major()
		s.bySum[e.spec.Sum] = e
		s.byPin[pin] = append(s.byPin[pin], e)
		slices.SortFunc(s.byPin[pin], func(a, b *entry) int { return compareVersions(a.spec.Version, b.spec.Version) })
	}
	return problems
}

func (s *snapshot) fits(e *entry, before *snapshot) error {
	pin := e.spec.Major()
	neighbours := s.byPin[pin]
	for _, other := range neighbours {
		if other.spec.Version == e.spec.Version {
			return fmt.Errorf("another file, %s, has the same name and version", other.file)
		}
	}
	if before != nil {
		neighbours = append(slices.Clone(neighbours), before.byPin[pin]...)
	}
	for _, other := range neighbours {
		if other.refused.Load() {
			continue // it made no write, so it binds nobody
		}
		if err := sameIdentity(other.spec, e.spec); err != nil {
			return err
		}
	}
	return nil
}

// sameIdentity says whether two versions of one major agree on what makes two
// requests the same write. Connector versions are no part of an identity, so
// they must (CONTRACT 3).
func sameIdentity(a, b Spec) error {
	for name, one := range a.Actions {
		other, ok := b.Actions[name]
		if !ok {
			continue
		}
		if !slices.Equal(sorted(one.Ignore), sorted(other.Ignore)) {
			return fmt.Errorf("action %s: identity.ignore differs from version %s of the same major; raise the major version", name, a.Version)
		}
	}
	return nil
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	sort.Strings(list)
	return slices.Compact(list)
}

// newest returns the highest version of a pin that does not contradict the
// Keeper, or nil.
func (s *snapshot) newest(pin string) *entry {
	versions := s.byPin[pin]
	for i := len(versions) - 1; i >= 0; i-- {
		if !versions[i].refused.Load() {
			return versions[i]
		}
	}
	return nil
}

// ascending lists all entries, older versions of a pin first: the Keeper's
// latest is then the newest.
func (s *snapshot) ascending() []*entry {
	pins := make([]string, 0, len(s.byPin))
	for pin := range s.byPin {
		pins = append(pins, pin)
	}
	sort.Strings(pins)
	var list []*entry
	for _, pin := range pins {
		list = append(list, s.byPin[pin]...)
	}
	return list
}

// compareVersions orders versions of three numbers.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		x, _ := strconv.Atoi(as[i])
		y, _ := strconv.Atoi(bs[i])
		if x != y {
			if x < y {
				return -1
			}
			return 1
		}
	}
	return len(as) - len(bs)
}
