package tenants

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// EraseWrites removes some of a closed scope's writes in one step, on a guard and
// with an audit row for so many; true means that there may be more. Dedupe's
// claims do.
type EraseWrites func(
	ctx context.Context, scope ledger.Scope, guard []ledger.Expect, row func(at time.Time, writes int) []byte,
) (more bool, err error)

// Eraser removes what deleted tenants leave: the rest of deletions that were cut
// short, then their writes with everything kept of them. Every gateway runs one.
// All its progress is in the store, so that one goes on where another, or an
// earlier process, was stopped.
type Eraser struct {
	d      *Directory
	writes EraseWrites
	// ended is told of each scope that takes no more rows, before it is forgotten
	// that it was to be erased; an error is a reason to come again.
	ended  func(ctx context.Context, ref Ref) error
	looked time.Time // for deletions that were cut short
}

// NewEraser returns an eraser. Ended may be nil.
func (d *Directory) NewEraser(writes EraseWrites, ended func(ctx context.Context, ref Ref) error) *Eraser {
	if ended == nil {
		ended = func(context.Context, Ref) error { return nil }
	}
	return &Eraser{d: d, writes: writes, ended: ended}
}

const (
	// lookEvery is how often deletions are looked for that were cut short between
	// the closing of the scope and the end of the entry. It reads every tenant.
	lookEvery = time.Hour
	// eraseBatch is how many tenants a pass takes at once.
	eraseBatch = 16
)

// eraserCaller is who the rows of an erasure name.
func eraserCaller() audit.Caller { return audit.Caller{Actor: audit.System(), Front: "eraser"} }

// erasureEntry is where the platform lists a deleted tenant whose writes are
// still to be removed; it is made in the step that frees the id.
func erasureEntry(ref Ref, deleted time.Time) ledger.Entry {
	return ledger.Entry{Index: ledger.ByErasure, Score: deleted, Member: ref.TenantID + "/" + ref.Tenant}
}

func refOfErasure(e ledger.Entry) (Ref, bool) {
	incarnation, id, ok := strings.Cut(e.Member, "/")
	return refOf(id, incarnation), ok
}

// erasureKey marks a tenant that is to be erased, so that of two who end it one
// says so. The slashes keep it apart from ids.
func erasureKey(ref Ref) ledger.Key {
	return ledger.Key{Kind: ledger.Tenant, ID: ref.Tenant + "/erase/" + ref.TenantID}
}

// Pass erases what is to be erased now. It returns when nothing is left to do,
// or with an error; either way it is to be called again after a while.
func (e *Eraser) Pass(ctx context.Context) error {
	var failed error
	if now := e.d.now(); e.looked.IsZero() || now.Sub(e.looked) >= lookEvery {
		if failed = e.finishDeletions(ctx); failed == nil {
			e.looked = now
		}
	}
	var after *ledger.Entry
	for ctx.Err() == nil {
		due, err := e.d.store.Entries(ctx, ledger.Platform, ledger.EntryRange{Index: ledger.ByErasure, After: after, Limit: eraseBatch})
		if err != nil {
			return errors.Join(failed, fmt.Errorf("list tenants to erase: %w", err))
		}
		for i := range due {
			after = &due[i]
			if err := e.erase(ctx, due[i]); err != nil {
				failed = errors.Join(failed, err) // the next one may fare better
			}
		}
		if len(due) < eraseBatch {
			break
		}
	}
	return failed
}

// finishDeletions carries deletions to their end whose caller was cut off after
// the tenant was gone.
func (e *Eraser) finishDeletions(ctx context.Context) error {
	cursor := ""
	for {
		ids, next, err := list(ctx, e.d.store, ledger.Platform, ledger.Tenant, cursor, listBatch)
		if err != nil {
			return err
		}
		for _, id := range ids {
			f, err := e.d.find(ctx, id)
			if err == nil && f.state == closed {
				err = e.d.sweepUp(ctx, eraserCaller(), f)
			}
			if err != nil {
				return fmt.Errorf("finish deletion: %w", err)
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

func (e *Eraser) erase(ctx context.Context, entry ledger.Entry) error {
	ref, ok := refOfErasure(entry)
	if !ok {
		return fmt.Errorf("read tenant to erase: %w", ledger.ErrCorrupt)
	}
	snap, err := e.d.store.Read(ctx, ref.Scope, ledger.Fetch{Key: audit.ClosedKey()})
	if err != nil {
		return fmt.Errorf("read tenant to erase: %w", err)
	}
	mark, ok := snap.Get(audit.ClosedKey())
	if !ok {
		return fmt.Errorf("tenant to erase is not closed: %w", ledger.ErrCorrupt)
	}
	guard := []ledger.Expect{{Key: audit.ClosedKey(), Version: mark.Version}}
	row := func(at time.Time, writes int) []byte {
		row := rowOf(eraserCaller(), ref, audit.TenantPurged, fmt.Sprintf("writes:%d", writes))
		row.At = at
		return row.Encode()
	}
	for more := true; more; {
		if more, err = e.writes(ctx, ref.Scope, guard, row); err != nil {
			return fmt.Errorf("erase tenant: %w", err)
		}
	}
	if err := e.ended(ctx, ref); err != nil {
		return fmt.Errorf("end log of erased tenant: %w", err)
	}
	return e.done(ctx, ref, entry)
}

// done notes that nothing is left of a tenant but its audit.
func (e *Eraser) done(ctx context.Context, ref Ref, entry ledger.Entry) error {
	k := erasureKey(ref)
	_, err := audit.Change(ctx, e.d.store, ledger.Platform, []ledger.Fetch{{Key: k}}, func(seen ledger.Snapshot, step *ledger.Step) error {
		v, ok := seen.Get(k)
		if !ok {
			return nil // another eraser said so
		}
		step.Expect = []ledger.Expect{{Key: k, Version: v.Version}}
		step.Delete = []ledger.Key{k}
		step.Unindex = []ledger.Entry{entry}
		audit.Append(step, rowOf(eraserCaller(), ref, audit.TenantErased, ref.TenantID))
		return nil
	})
	return err
}
