package catalog

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
)

// maxRegistered bounds the list of registered versions: it is one value, read
// every few seconds.
const maxRegistered = 1000

// errRevised means that somebody else changed the list meanwhile.
var errRevised = errors.New("list of registered connectors changed meanwhile")

// maxTries bounds how often a registration is decided again.
const maxTries = 8

func listKey() ledger.Key { return ledger.Key{Kind: ledger.Manifest, ID: "registered"} }

// registered is one element of the list as it is stored.
type registered struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Sum     string `json:"sum"` // hexadecimal
}

var _ connectors.Shelf = (*Catalog)(nil)

// Registered lists what is registered for all replicas.
func (c *Catalog) Registered(ctx context.Context) (revision string, list []connectors.Registration, err error) {
	snap, err := c.store.Read(ctx, ledger.Platform, ledger.Fetch{Key: listKey()})
	if err != nil {
		return "", nil, fmt.Errorf("list registered connectors: %w", err)
	}
	return decodeList(snap)
}

func decodeList(snap ledger.Snapshot) (revision string, list []connectors.Registration, err error) {
	v, ok := snap.Get(listKey())
	if !ok {
		return "", nil, nil
	}
	var stored []registered
	if err := json.Unmarshal(v.Data, &stored); err != nil {
		return "", nil, fmt.Errorf("list registered connectors: %w", ledger.ErrCorrupt)
	}
	for _, one := range stored {
		sum, err := hex.DecodeString(one.Sum)
		if err != nil || len(sum) != len(connectors.Sum{}) {
			return "", nil, fmt.Errorf("list registered connectors: %w", ledger.ErrCorrupt)
		}
		list = append(list, connectors.Registration{Name: one.Name, Version: one.Version, Sum: connectors.Sum(sum)})
	}
	return string(v.Version[:]), list, nil
}

func encodeList(list []connectors.Registration) ([]byte, error) {
	stored := make([]registered, 0, len(list))
	for _, one := range list {
		stored = append(stored, registered{Name: one.Name, Version: one.Version, Sum: hex.EncodeToString(one.Sum[:])})
	}
	data, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encode registered connectors: %w", err)
	}
	return data, nil
}

// Registrar registers and removes connectors for all replicas.
type Registrar struct {
	catalog  *Catalog
	registry *connectors.Registry
	// pinned says whether any tenant's connection pins name@major.
	pinned func(ctx context.Context, pin string) (bool, error)
	log    *slog.Logger
}

// NewRegistrar returns a Registrar over the catalog that is registry's Shelf and
// Keeper.
func NewRegistrar(
	c *Catalog, registry *connectors.Registry, pinned func(context.Context, string) (bool, error), log *slog.Logger,
) *Registrar {
	return &Registrar{catalog: c, registry: registry, pinned: pinned, log: log}
}

// refresh loads the list here. What is wrong with others on it is no reason to
// fail this call.
func (r *Registrar) refresh(ctx context.Context) {
	if err := r.registry.Refresh(ctx); err != nil {
		r.log.WarnContext(ctx, "registered connectors not all loaded", "error", err)
	}
}

// Register keeps a manifest as name and version for all replicas; this one has
// it when Register returns. A version never changes: other bytes are
// [connectors.ErrTaken], the same ones change nothing. A manifest that is not
// acceptable is a *connectors.ManifestError.
func (r *Registrar) Register(
	ctx context.Context, caller audit.Caller, name, version string, manifest []byte,
) (spec connectors.Spec, created bool, err error) {
	for range maxTries {
		standing, err := r.registry.Examine(ctx, name, version, manifest)
		if err != nil {
			return connectors.Spec{}, false, fmt.Errorf("register connector: %w", err)
		}
		if standing.Exists {
			return standing.Spec, false, nil
		}
		err = r.catalog.register(ctx, caller, standing, manifest)
		if errors.Is(err, errRevised) {
			continue
		}
		if err != nil {
			return connectors.Spec{}, false, fmt.Errorf("register connector: %w", err)
		}
		r.refresh(ctx)
		return standing.Spec, true, nil
	}
	return connectors.Spec{}, false, fmt.Errorf("register connector: %w", ledger.ErrUnavailable)
}

// register adds a version to the list the standing was found against.
func (c *Catalog) register(ctx context.Context, caller audit.Caller, standing connectors.Standing, manifest []byte) error {
	spec := standing.Spec
	bySum, byPin := sumKey(spec.Sum), pinKey(spec.Major())
	fetch := []ledger.Fetch{{Key: listKey()}, {Key: bySum}, {Key: byPin}}
	return c.change(ctx, fetch, standing.Revision, func(seen ledger.Snapshot, list []connectors.Registration, step *ledger.Step) ([]connectors.Registration, error) {
		if len(list) >= maxRegistered {
			return nil, &connectors.ManifestError{Problems: []connectors.ManifestProblem{{Reason: fmt.Sprintf("%d versions are registered, and more are not; delete those nothing uses", maxRegistered)}}}
		}
		kept, known := seen.Get(bySum)
		step.Expect = append(step.Expect, ledger.Expect{Key: bySum, Version: kept.Version})
		if !known {
			step.Put = append(step.Put, ledger.Put{Key: bySum, Data: manifest})
		}
		if standing.Newest {
			latest, _ := seen.Get(byPin)
			step.Expect = append(step.Expect, ledger.Expect{Key: byPin, Version: latest.Version})
			step.Put = append(step.Put, ledger.Put{Key: byPin, Data: spec.Sum[:]})
		}
		row := caller.Row(audit.ConnectorRegistered)
		row.Subject = spec.Name + "@" + spec.Version
		audit.Append(step, row)
		return append(list, connectors.Registration{Name: spec.Name, Version: spec.Version, Sum: spec.Sum}), nil
	})
}

// change decides a new list from the one at revision.
func (c *Catalog) change(
	ctx context.Context, fetch []ledger.Fetch, revision string,
	decide func(seen ledger.Snapshot, list []connectors.Registration, step *ledger.Step) ([]connectors.Registration, error),
) error {
	_, err := audit.Change(ctx, c.store, ledger.Platform, fetch, func(seen ledger.Snapshot, step *ledger.Step) error {
		now, list, err := decodeList(seen)
		if err != nil {
			return err
		}
		if now != revision {
			return errRevised
		}
		list, err = decide(seen, list, step)
		if err != nil {
			return err
		}
		data, err := encodeList(list)
		if err != nil {
			return err
		}
		before, _ := seen.Get(listKey())
		step.Expect = append(step.Expect, ledger.Expect{Key: listKey(), Version: before.Version})
		step.Put = append(step.Put, ledger.Put{Key: listKey(), Data: data})
		return nil
	})
	return err
}

// Unregister takes a version off the list. Its bytes stay kept: writes made
// with it are judged, checked and replayed by it still. A version whose
// connections would be left without a connector is [connectors.ErrInUse]; one that
// is not registered is [connectors.ErrUnknownConnector].
func (r *Registrar) Unregister(ctx context.Context, caller audit.Caller, name, version string) error {
	r.refresh(ctx)
	for range maxTries {
		revision, list, err := r.catalog.Registered(ctx)
		if err != nil {
			return fmt.Errorf("unregister connector: %w", err)
		}
		at := slices.IndexFunc(list, func(one connectors.Registration) bool { return one.Name == name && one.Version == version })
		if at < 0 {
			return fmt.Errorf("unregister connector: %w", connectors.ErrUnknownConnector)
		}
		if err := r.free(ctx, list[at]); err != nil {
			return fmt.Errorf("unregister connector: %w", err)
		}
		err = r.catalog.change(ctx, []ledger.Fetch{{Key: listKey()}}, revision,
			func(_ ledger.Snapshot, list []connectors.Registration, step *ledger.Step) ([]connectors.Registration, error) {
				row := caller.Row(audit.ConnectorDeleted)
				row.Subject = name + "@" + version
				audit.Append(step, row)
				return slices.Delete(list, at, at+1), nil
			})
		if errors.Is(err, errRevised) {
			continue
		}
		if err != nil {
			return fmt.Errorf("unregister connector: %w", err)
		}
		r.refresh(ctx)
		return nil
	}
	return fmt.Errorf("unregister connector: %w", ledger.ErrUnavailable)
}

// free says whether a version can go.
func (r *Registrar) free(ctx context.Context, reg connectors.Registration) error {
	if !r.registry.Alone(reg) {
		return nil
	}
	used, err := r.pinned(ctx, reg.Pin())
	if err != nil {
		return err
	}
	if used {
		return connectors.ErrInUse
	}
	return nil
}
