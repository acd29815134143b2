package archive

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// archivePage is how many scopes, objects or entries one call deals with.
const archivePage = 200

// archivedEntry is a scope's place among those with an archive. All have one
// score, so that noting one again changes nothing; they stand in the order of
// their hashes.
func archivedEntry(scope ledger.Scope) ledger.Entry {
	return ledger.Entry{Index: ledger.ByArchive, Score: time.UnixMilli(1), Member: string(scope[:])}
}

// archived calls each with every scope that has an archive, until it returns an
// error.
func (s *Sealer) archived(ctx context.Context, each func(ledger.Scope) error) error {
	var after *ledger.Entry
	for {
		page, err := s.Store.Entries(ctx, ledger.Platform, ledger.EntryRange{Index: ledger.ByArchive, After: after, Limit: archivePage})
		if err != nil {
			return fmt.Errorf("list archived scopes: %w", err)
		}
		for i := range page {
			after = &page[i]
			if len(after.Member) != len(ledger.Scope{}) {
				continue
			}
			if err := each(ledger.Scope([]byte(after.Member))); err != nil {
				return err
			}
		}
		if len(page) < archivePage {
			return nil
		}
	}
}

func maintainKey() ledger.Key { return ledger.Key{Kind: ledger.Sealing, ID: "maintain"} }

// maintainAlone maintains unless another replica did so within the hour. Two
// would do no harm; one is enough.
func (s *Sealer) maintainAlone(ctx context.Context) error {
	at := s.Store.Now()
	step := ledger.Step{
		Nonce: ledger.NewNonce(), At: at, Expect: []ledger.Expect{{Key: maintainKey()}},
		Put: []ledger.Put{{Key: maintainKey(), Data: []byte{recordVersion}, Expires: at.Add(maintainEvery - time.Minute)}},
	}
	res, err := apply(ctx, s.Store, ledger.Platform, step)
	if err != nil || !res.Applied {
		return err
	}
	return s.Maintain(ctx)
}

// Maintain lets go what is old enough, in every scope with an archive: rows in
// the store that are safe in the archive, segments whose retention has passed,
// and what a deleted tenant leaves when nothing of its log is left.
func (s *Sealer) Maintain(ctx context.Context) error {
	return s.archived(ctx, func(scope ledger.Scope) error {
		if err := s.maintain(ctx, scope); err != nil && ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "old audit rows stay for now", "error", err)
		}
		return ctx.Err()
	})
}

func (s *Sealer) maintain(ctx context.Context, scope ledger.Scope) error {
	if err := s.trim(ctx, scope); err != nil {
		return err
	}
	h, gone, err := s.expire(ctx, scope)
	if err != nil || !gone || !h.Final || h.Kept.Number <= h.Number {
		return err
	}
	return s.forget(ctx, scope, h)
}

// trim removes rows from the store that were sealed and are older than Hot. Each
// segment is read from the archive once more before the rows in it go: it is the
// only copy from then on.
func (s *Sealer) trim(ctx context.Context, scope ledger.Scope) error {
	before := s.Store.Now().Add(-s.Hot)
	h, ok, err := readHead(ctx, s.Store, scope)
	if err != nil || !ok {
		return err
	}
	rows, err := s.Store.Rows(ctx, scope, ledger.RowRange{Limit: 1})
	if err != nil {
		return fmt.Errorf("read oldest row: %w", err)
	}
	if len(rows) == 0 || !rows[0].At.Before(before) || rows[0].Cursor > h.Cursor {
		return nil
	}
	reader := newReader(s.Store, s.Storage, s.codec)
	find := search{ctx: ctx, reader: reader, scope: scope}
	number := find.first(h.Kept.Number, h.Number, func(e Entry) bool { return e.Cursor >= rows[0].Cursor })
	if find.err != nil {
		return find.err
	}
	for ; number <= h.Number; number++ {
		found, err := entries(ctx, s.Store, scope, number, 1, decodeEntry)
		if err != nil {
			return err
		}
		if len(found) == 0 || !found[0].To.Before(before) {
			return nil
		}
		if _, err := load(ctx, s.Storage, found[0].Object); err != nil {
			return fmt.Errorf("rows stay in the store: %w", err)
		}
		if err := s.Store.TrimRows(ctx, scope, found[0].Cursor); err != nil {
			return fmt.Errorf("trim sealed rows: %w", err)
		}
	}
	return nil
}

// expireAtOnce bounds the entries that one step removes.
const expireAtOnce = 64

// expire removes whole segments whose newest row is older than the retention:
// first from the catalog, in one step that says where the log begins from now on,
// then from the archive. It returns the head, and whether the tenant is gone.
func (s *Sealer) expire(ctx context.Context, scope ledger.Scope) (Head, bool, error) {
	keep, exists, err := s.Retention(ctx, scope)
	if err != nil {
		return Head{}, false, fmt.Errorf("read retention: %w", err)
	}
	for {
		h, ok, err := readHead(ctx, s.Store, scope)
		if err != nil || !ok {
			return h, !exists, err
		}
		if !exists {
			keep = h.Retention
		}
		if keep <= 0 {
			keep = DefaultRetention
		}
		n, err := s.expireSome(ctx, scope, h, s.Store.Now().Add(-keep))
		if err != nil || n < expireAtOnce {
			h.Kept.Number += uint64(n)
			return h, !exists, err
		}
	}
}

func (s *Sealer) expireSome(ctx context.Context, scope ledger.Scope, h Head, before time.Time) (int, error) {
	if h.Kept.Number > h.Number {
		return 0, nil
	}
	found, err := entries(ctx, s.Store, scope, h.Kept.Number, min(expireAtOnce, h.Number+1-h.Kept.Number), decodeEntry)
	if err != nil {
		return 0, err
	}
	n := 0
	for n < len(found) && found[n].To.Before(before) {
		n++
	}
	if n == 0 {
		return 0, nil
	}
	last := found[n-1]
	next := h
	next.Kept = Kept{Number: last.Number + 1, Seq: last.Last + 1, Prev: last.Head}
	step := ledger.Step{
		Nonce: ledger.NewNonce(), At: s.Store.Now(),
		Expect: []ledger.Expect{{Key: headKey(), Version: h.version}}, Put: []ledger.Put{{Key: headKey(), Data: encode(next)}},
	}
	for _, e := range found[:n] {
		step.Delete = append(step.Delete, entryKey(e.Number))
	}
	// Rows that outlived their segment in the store go first, so that none is left
	// that no entry tells of.
	if err := s.Store.TrimRows(ctx, scope, last.Cursor); err != nil {
		return 0, fmt.Errorf("trim expired rows: %w", err)
	}
	res, err := apply(ctx, s.Store, scope, step)
	if err != nil || !res.Applied {
		return 0, err // a segment was sealed meanwhile: the next hour sees to it
	}
	s.Logger.InfoContext(ctx, "audit segments removed after their retention", "segments", n, "through_row", last.Last)
	return n, s.clear(ctx, scope, next.Kept.Number)
}

// clear removes the objects of all segments before a number, those included that
// were stored and never recorded.
func (s *Sealer) clear(ctx context.Context, scope ledger.Scope, before uint64) error {
	for {
		names, err := s.Storage.List(ctx, scopePrefix(scope), archivePage)
		if err != nil {
			return archiveError{fmt.Errorf("list audit archive: %w", err)}
		}
		removed := 0
		for _, name := range names {
			if n, ok := numberOf(scope, name); !ok || n >= before {
				break
			}
			if err := s.Storage.Delete(ctx, name); err != nil {
				return archiveError{fmt.Errorf("delete from audit archive: %w", err)}
			}
			removed++
		}
		if removed < archivePage {
			return nil
		}
	}
}

// numberOf reads the number of a segment out of the name of one of its objects.
func numberOf(scope ledger.Scope, name string) (uint64, bool) {
	rest, ok := strings.CutPrefix(name, scopePrefix(scope))
	digits, _, found := strings.Cut(rest, "-")
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && found && err == nil
}

// forget removes the last traces of a deleted tenant's log whose retention has
// passed: its head, and its place among the archived scopes.
func (s *Sealer) forget(ctx context.Context, scope ledger.Scope, h Head) error {
	rows, err := s.Store.Rows(ctx, scope, ledger.RowRange{After: h.Cursor, Limit: 1})
	if err != nil || len(rows) > 0 {
		return err
	}
	if err := s.clear(ctx, scope, math.MaxUint64); err != nil {
		return err
	}
	now, ok, err := readHead(ctx, s.Store, scope)
	if err != nil || ok && now.Kept.Number <= now.Number {
		return err
	}
	if ok {
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: s.Store.Now(),
			Expect: []ledger.Expect{{Key: headKey(), Version: now.version}}, Delete: []ledger.Key{headKey()},
		}
		if res, err := apply(ctx, s.Store, scope, step); err != nil || !res.Applied {
			return err
		}
	}
	step := ledger.Step{
		Nonce: ledger.NewNonce(), At: s.Store.Now(),
		Unindex: []ledger.Entry{archivedEntry(scope)},
	}
	_, err = apply(ctx, s.Store, ledger.Platform, step)
	return err
}

// MaintainScope is Maintain for one scope.
func (s *Sealer) MaintainScope(ctx context.Context, scope ledger.Scope) error {
	return s.maintain(ctx, scope)
}
