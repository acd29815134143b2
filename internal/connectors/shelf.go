package connectors

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
)

// Registration is one version registered for all replicas.
type Registration struct {
	Name    string
	Version string
	Sum     Sum // its bytes are kept by the Keeper
}

// Pin returns "name@major".
func (r Registration) Pin() string { return Spec{Name: r.Name, Version: r.Version}.Major() }

// Shelf lists what is registered for all replicas. A ledger-backed package
// implements it. Methods may be called from many goroutines.
type Shelf interface {
	// Registered returns the list, and a revision that is another one whenever
	// the list is.
	Registered(ctx context.Context) (revision string, list []Registration, err error)
}

// Refresh asks the Shelf and loads what was registered, or removed, since. A
// registered version that does not compile in this release, or contradicts a
// file, is left out and named by the error, once; a Shelf that does not answer
// changes nothing.
func (r *Registry) Refresh(ctx context.Context) error {
	r.loading.Lock()
	defer r.loading.Unlock()
	return r.refresh(ctx)
}

func (r *Registry) refresh(ctx context.Context) error {
	if r.opts.Shelf == nil {
		return nil
	}
	revision, list, err := r.opts.Shelf.Registered(ctx)
	if err != nil {
		return fmt.Errorf("refresh connectors: %w", err)
	}
	if r.listed && revision == r.revision {
		return nil
	}
	shared, problems, err := r.loadShared(ctx, list)
	if err != nil {
		return fmt.Errorf("refresh connectors: %w", err)
	}
	before := r.current.Load()
	snap, _ := newSnapshot(r.local, before) // their problems were told when they were loaded
	problems = append(problems, snap.fill(shared, before)...)
	r.adopt(snap)
	r.shared, r.revision, r.listed = shared, revision, true
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("refresh connectors: %w", err)
	}
	return nil
}

// loadShared compiles what is registered and not compiled yet. The error is the
// Keeper's, and then nothing may be concluded.
func (r *Registry) loadShared(ctx context.Context, list []Registration) (shared []*entry, problems []error, err error) {
	for _, reg := range list {
		at := slices.IndexFunc(r.shared, func(e *entry) bool { return e.spec.Sum == reg.Sum })
		if at >= 0 {
			shared = append(shared, r.shared[at])
			continue
		}
		manifest, err := r.opts.Keeper.Load(ctx, reg.Sum)
		if err != nil {
			return nil, nil, err
		}
		e, err := compileOne(r.opts.Compile, Source{Manifest: manifest, Name: reg.Name, Version: reg.Version})
		if err != nil {
			problems = append(problems, inFile(reg.file(), err))
			continue
		}
		e.file, e.shared = reg.file(), true
		shared = append(shared, e)
	}
	return shared, problems, nil
}

// file is where a registered manifest is said to lie.
func (r Registration) file() string { return "registered/" + r.Name + "/" + r.Version }

// Standing is what a manifest that is to be registered comes to.
type Standing struct {
	Spec     Spec
	Revision string // of the Shelf's list it was held against
	Exists   bool   // these very bytes are registered under this version
	Newest   bool   // no higher version of its major is loaded
}

// Examine holds a manifest against what is loaded and registered, as if it were
// to be registered under name and version. The error is a *ManifestError,
// ErrTaken, or the store's.
func (r *Registry) Examine(ctx context.Context, name, version string, manifest []byte) (Standing, error) {
	r.loading.Lock()
	defer r.loading.Unlock()
	if err := r.refresh(ctx); err != nil && !r.listed {
		return Standing{}, err
	}
	e, err := compileOne(r.opts.Compile, Source{Manifest: manifest, Name: name, Version: version})
	if err != nil {
		return Standing{}, err
	}
	st := Standing{Spec: e.spec, Revision: r.revision, Newest: true}
	snap, pin := r.current.Load(), e.spec.Major()
	for _, other := range append(slices.Clone(r.shared), snap.byPin[pin]...) {
		switch {
		case other.spec.Name != name || other.spec.Version != version:
		case other.spec.Sum != sha256.Sum256(manifest):
			return Standing{}, ErrTaken
		case other.shared:
			st.Exists = true
		}
	}
	if st.Exists {
		return st, nil
	}
	for _, other := range snap.byPin[pin] {
		if err := sameIdentity(other.spec, e.spec); err != nil && !other.refused.Load() {
			return Standing{}, contradicts(err)
		}
		st.Newest = st.Newest && compareVersions(other.spec.Version, version) < 0
	}
	kept, err := r.latest(ctx, pin)
	switch {
	case errors.Is(err, ErrNotKept):
	case err != nil:
		return Standing{}, err
	default:
		if err := sameIdentity(kept.Spec(), e.spec); err != nil {
			return Standing{}, contradicts(err)
		}
	}
	return st, nil
}

func contradicts(err error) error {
	return &ManifestError{Problems: []ManifestProblem{{Pointer: "/actions", Reason: err.Error()}}}
}

// Alone says whether a registered version is the only one of its major that
// every replica has, so that its connections would be left without. What lies in
// this replica's folder does not count: another may not have it.
func (r *Registry) Alone(reg Registration) bool {
	for _, e := range r.current.Load().byPin[reg.Pin()] {
		builtIn := slices.ContainsFunc(r.opts.Builtin, func(s Source) bool { return sha256.Sum256(s.Manifest) == e.spec.Sum })
		if builtIn || e.shared && e.spec.Version != reg.Version {
			return false
		}
	}
	return true
}
