package connectors

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// CompileFunc turns the bytes of a manifest into a Connector. The error is a
// *ManifestError.
type CompileFunc func(manifest []byte) (Connector, error)

// Source is one manifest and where it came from.
type Source struct {
	File     string
	Manifest []byte
	// Name and Version, where set, are what the manifest must call itself: its
	// folders say so.
	Name, Version string
}

// Options say what a Registry is made of.
type Options struct {
	Compile CompileFunc
	// Builtin are the manifests inside the binary. Each must compile.
	Builtin []Source
	// Dir holds more, as <name>/<version>/connector.yaml; empty for none.
	Dir string
	// Keeper remembers manifests; nil for a registry that lives and dies with
	// its files.
	Keeper Keeper
	// Shelf lists what was registered for all replicas; nil for none. The bytes
	// are the Keeper's.
	Shelf Shelf
}

// Loaded is a connector found in a Registry.
type Loaded struct {
	Connector
	// Claimable says that new writes may be claimed with it. It is false for a
	// version that is known only from the Keeper (its file is gone or broken),
	// and until the Keeper has this one: what exists may be replayed, judged
	// and checked, but nothing new may come to depend on it.
	Claimable bool
}

// Registry holds the loaded connectors. Readers see one immutable snapshot; a
// reload swaps it whole or leaves it alone. All methods may be called from many
// goroutines.
type Registry struct {
	opts    Options
	current atomic.Pointer[snapshot]

	loading  sync.Mutex // one Reload, Refresh or Keep at a time; guards what follows
	started  bool       // Reload was called before
	local    []*entry   // built in or from the folder
	shared   []*entry   // registered for all replicas
	revision string     // of the Shelf's list that shared was made from
	listed   bool       // the Shelf has answered before

	mu   sync.Mutex
	kept map[Sum]Connector // compiled from the Keeper
}

// NewRegistry compiles the built-in manifests. The folder is not read before
// Reload is called. One that does not compile is a mistake of the release, and
// the error says which.
func NewRegistry(opts Options) (*Registry, error) {
	r := &Registry{opts: opts, kept: make(map[Sum]Connector)}
	entries, problems := compileAll(opts.Compile, opts.Builtin)
	snap, more := newSnapshot(entries, nil)
	if err := errors.Join(append(problems, more...)...); err != nil {
		return nil, fmt.Errorf("load built-in connectors: %w", err)
	}
	r.local = entries
	r.adopt(snap)
	return r, nil
}

// Reload reads the folder and replaces the snapshot. If any file is bad it
// changes nothing, and the error names every file and line; only the first
// time, when there is nothing to go on with, the good files are taken without
// the bad ones. What was loaded for the first time must be given to Keep before it is
// claimable.
func (r *Registry) Reload(ctx context.Context) error {
	r.loading.Lock()
	defer r.loading.Unlock()

	sources, problems := readFolder(ctx, r.opts.Dir)
	entries, more := compileAll(r.opts.Compile, slices.Concat(r.opts.Builtin, sources))
	problems = append(problems, more...)
	before := r.current.Load()
	snap, more := newSnapshot(entries, before)
	problems = append(problems, more...)
	// What was registered stands: a file that leaves it no room is the bad one.
	problems = append(problems, snap.fill(r.shared, before)...)
	if ctx.Err() != nil {
		return fmt.Errorf("reload connectors: %w", ctx.Err())
	}
	err := errors.Join(problems...)
	if err == nil || !r.started {
		r.local = entries
		r.adopt(snap)
	}
	r.started = true
	if err != nil {
		return fmt.Errorf("reload connectors: %w", err)
	}
	return nil
}

// Keep hands the Keeper every manifest it has not confirmed yet, and makes
// those it has claimable. Call it when the store is ready and after each
// Reload, again after an error: the rest stays unclaimable until then. A
// version whose identity.ignore differs from the one kept for its major is not
// made claimable: the same request would become another identity.
func (r *Registry) Keep(ctx context.Context) error {
	r.loading.Lock()
	defer r.loading.Unlock()

	var problems []error
	for _, e := range r.current.Load().ascending() {
		if e.claimable.Load() {
			continue
		}
		if err := r.keep(ctx, e); err != nil {
			problems = append(problems, fmt.Errorf("keep connector %s %s: %w", e.spec.Name, e.spec.Version, err))
		}
	}
	return errors.Join(problems...)
}

func (r *Registry) keep(ctx context.Context, e *entry) error {
	pin := e.spec.Major()
	latest, err := r.latest(ctx, pin)
	switch {
	case errors.Is(err, ErrNotKept):
	case err != nil:
		return err
	default:
		if err := sameIdentity(latest.Spec(), e.spec); err != nil {
			e.refused.Store(true)
			return err
		}
	}
	if err := r.opts.Keeper.Save(ctx, pin, e.spec.Sum, e.manifest); err != nil {
		return err
	}
	e.refused.Store(false)
	e.claimable.Store(true)
	return nil
}

// Lookup finds the newest version of a pin, "name@major". One that is not loaded
// may have been registered a moment ago, so the Shelf is asked. Where nothing
// offers one any more it falls back on the last one kept, which is then not
// claimable. The error is ErrUnknownConnector or the Keeper's.
func (r *Registry) Lookup(ctx context.Context, pin string) (Loaded, error) {
	e := r.current.Load().newest(pin)
	if e == nil {
		if _, _, ok := MajorOf(pin); !ok || r.opts.Keeper == nil {
			return Loaded{}, ErrUnknownConnector
		}
		_ = r.Refresh(ctx) // if the store failed, so does the look-up in the Keeper below
		e = r.current.Load().newest(pin)
	}
	if e != nil {
		return Loaded{Connector: e.connector, Claimable: e.claimable.Load()}, nil
	}
	c, err := r.latest(ctx, pin)
	if errors.Is(err, ErrNotKept) {
		return Loaded{}, ErrUnknownConnector
	}
	if err != nil {
		return Loaded{}, fmt.Errorf("look up connector: %w", err)
	}
	return Loaded{Connector: c}, nil
}

// Exact finds the very version a write was claimed with, loaded or kept. The
// error is ErrUnknownConnector or the Keeper's.
func (r *Registry) Exact(ctx context.Context, sum Sum) (Connector, error) {
	if e := r.current.Load().bySum[sum]; e != nil {
		return e.connector, nil
	}
	if c := r.cached(sum); c != nil {
		return c, nil
	}
	if r.opts.Keeper == nil {
		return nil, ErrUnknownConnector
	}
	manifest, err := r.opts.Keeper.Load(ctx, sum)
	if errors.Is(err, ErrNotKept) {
		return nil, ErrUnknownConnector
	}
	if err != nil {
		return nil, fmt.Errorf("load kept connector: %w", err)
	}
	return r.compileKept(manifest, &sum)
}

// Specs lists the loaded connectors, newest version of each major, by name.
func (r *Registry) Specs() []Spec {
	var list []Spec
	snap := r.current.Load()
	for pin := range snap.byPin {
		if e := snap.newest(pin); e != nil {
			list = append(list, e.spec)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Major() < list[j].Major() })
	return list
}

// adopt makes a snapshot the current one. What the Keeper has said of an entry
// before still holds.
func (r *Registry) adopt(snap *snapshot) {
	old := r.current.Load()
	for sum, e := range snap.bySum {
		if old != nil && old.bySum[sum] == e {
			continue
		}
		e.claimable.Store(r.opts.Keeper == nil || e.shared)
		if old != nil && old.bySum[sum] != nil && !e.shared {
			e.claimable.Store(old.bySum[sum].claimable.Load())
			e.refused.Store(old.bySum[sum].refused.Load())
		}
	}
	r.current.Store(snap)
}

func (r *Registry) latest(ctx context.Context, pin string) (Connector, error) {
	manifest, err := r.opts.Keeper.Latest(ctx, pin)
	if err != nil {
		return nil, err
	}
	if c := r.cached(sha256.Sum256(manifest)); c != nil {
		return c, nil
	}
	return r.compileKept(manifest, nil)
}

func (r *Registry) cached(sum Sum) Connector {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept[sum]
}

// maxKept bounds the connectors compiled from the Keeper. They are few: the
// versions that writes not yet forgotten were claimed with.
const maxKept = 256

func (r *Registry) compileKept(manifest []byte, want *Sum) (Connector, error) {
	sum := Sum(sha256.Sum256(manifest))
	if want != nil && sum != *want {
		return nil, errors.New("load kept connector: it is not the one that was saved")
	}
	c, err := r.opts.Compile(manifest)
	if err != nil {
		return nil, fmt.Errorf("load kept connector: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) >= maxKept {
		clear(r.kept)
	}
	r.kept[sum] = c
	return c, nil
}
