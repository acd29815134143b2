package due

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// All calls each with every tenant there is.
func (s *Scopes) All(ctx context.Context, each func(tenants.Ref) error) error {
	return s.Directory.Refs(ctx, each) //nolint:wrapcheck // it is the directory's
}

// Refs calls each with every tenant that may have something due, until it returns
// an error. A scope of which something cannot be read keeps no other waiting; the
// error tells of it at the end.
func (s *Scopes) Refs(ctx context.Context, each func(tenants.Ref) error) error {
	looked := s.look(ctx, atLatest)
	if ctx.Err() != nil || errors.Is(looked, ledger.ErrNotReady) {
		return looked
	}
	marks, err := s.marks(ctx)
	if err != nil {
		return err
	}
	errs := []error{looked}
	s.mu.Lock()
	had := maps.Clone(s.refs)
	s.mu.Unlock()
	refs := make(map[ledger.Scope]tenants.Ref, len(marks))
	for scope, spells := range marks {
		var err error
		ref, ok := had[scope]
		if !ok {
			ref, ok, err = s.RefOf(ctx, scope)
		}
		if ok {
			refs[scope] = ref
			if err := each(ref); err != nil {
				return err
			}
		}
		if err == nil {
			err = s.tidy(ctx, scope, spells)
		}
		if ctx.Err() != nil || errors.Is(err, ledger.ErrNotReady) {
			return err
		}
		errs = append(errs, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for scope := range had { // and not what a look has found meanwhile
		if _, marked := refs[scope]; !marked {
			delete(s.refs, scope)
		}
	}
	maps.Copy(s.refs, refs)
	return errors.Join(errs...)
}

// Look goes through all tenants, if that was not done for a while, and marks those
// with something due. It is to be called beside the rounds, again and again: with many
// tenants it takes longer than a round may be kept waiting. A round does it by itself
// only at the start, after [Scopes.Forget], and where nobody has for too long.
func (s *Scopes) Look(ctx context.Context) error { return s.look(ctx, lookEvery) }

func (s *Scopes) look(ctx context.Context, every time.Duration) error {
	s.mu.Lock()
	last, lost := s.looked, s.lost
	s.mu.Unlock()
	if !last.IsZero() && time.Since(last) < every {
		return nil
	}
	began := time.Now()
	err := s.All(ctx, func(ref tenants.Ref) error {
		quiet, err := s.quiet(ctx, ref.Scope)
		switch {
		case ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable):
			return err
		case err == nil && quiet:
			return nil
		}
		s.mu.Lock()
		s.refs[ref.Scope] = ref // its own record may be unreadable
		s.mu.Unlock()
		return s.mark(ctx, ref.Scope) // what cannot be read may be due
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.lost == lost {
		s.looked = began
	}
	s.mu.Unlock()
	return nil
}

// marks reads all marks.
func (s *Scopes) marks(ctx context.Context) (map[ledger.Scope][]int64, error) {
	found := map[ledger.Scope][]int64{}
	r := ledger.EntryRange{Index: ledger.ByDue, Limit: page}
	for {
		entries, err := s.store.Entries(ctx, ledger.Platform, r)
		if err != nil {
			return nil, fmt.Errorf("read marks: %w", err)
		}
		for _, e := range entries {
			if scope, spell, ok := parse(e); ok {
				found[scope] = append(found[scope], spell)
			}
		}
		if len(entries) < page {
			return found, nil
		}
		r.After = &entries[len(entries)-1]
	}
}

// tidy removes marks whose time is over; a scope that is not quiet gets another
// first.
func (s *Scopes) tidy(ctx context.Context, scope ledger.Scope, spells []int64) error {
	now := spellOf(s.store.Now())
	var over []ledger.Entry
	for _, spell := range spells {
		if spell <= now-2 {
			over = append(over, entry(scope, spell))
		}
	}
	if len(over) == 0 {
		return nil
	}
	if len(over) == len(spells) { // there is no other
		quiet, err := s.quiet(ctx, scope)
		if err == nil && !quiet {
			err = s.mark(ctx, scope)
		}
		if err != nil {
			return err
		}
	}
	return s.apply(ctx, ledger.Step{Nonce: ledger.NewNonce(), Unindex: over})
}

// quiet says whether nothing in a scope asks for the clock.
func (s *Scopes) quiet(ctx context.Context, scope ledger.Scope) (bool, error) {
	for _, k := range kinds {
		first, err := s.store.Entries(ctx, scope, ledger.EntryRange{Index: k, Limit: 1})
		if err != nil {
			return false, fmt.Errorf("look for what is due: %w", err)
		}
		if len(first) > 0 {
			return false, nil
		}
	}
	return true, nil
}
