package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// Sealed says what Seal did.
type Sealed struct {
	// Rows of the segment that was recorded; 0 if nothing was due. With Final there
	// may be a segment without rows.
	Rows  int
	Final bool
	again bool // another sealer was first; there may be more
	left
}

// verdict says what became of a segment that was stored.
type verdict int

const (
	refused  verdict = iota // it was not recorded and never will be
	recorded                // it is the next one of its log
	doubtful                // the store did not say
)

const (
	// pageRows is how many rows are asked of the store at once.
	pageRows = 256
	// storagePatience bounds one attempt at a segment.
	storagePatience = 2 * time.Minute
	// cleanPatience bounds the removal of objects that came to nothing.
	cleanPatience = 3 * time.Second
)

// Seal makes one segment of the rows of a scope that are not sealed yet, if they
// are due or final is set: the tenant is gone and nothing follows. With final it
// may have to be called again until Final is set: one segment takes only so many
// rows.
//
// The order makes it safe against anything that can happen between: the segment
// is stored, read back, and only then recorded, in one step that expects the head
// it continues. What was stored and not recorded counts for nothing.
func (s *Sealer) Seal(ctx context.Context, scope ledger.Scope, final bool) (Sealed, error) {
	h, exists, err := readHead(ctx, s.Store, scope)
	if err != nil {
		return Sealed{}, err
	}
	if final && h.Final {
		final = false // it ended before; rows that came later are sealed as ever
	}
	batch, err := s.batch(ctx, scope, h.Cursor)
	if err != nil {
		return Sealed{}, err
	}
	final = final && !batch.full
	if len(batch.rows) == 0 && (!final || !exists) {
		return Sealed{Final: h.Final || !exists, left: left{counted: true}}, nil
	}
	if !final && !batch.full && s.Store.Now().Before(batch.rows[0].At.Add(s.Backlog.cut.Age)) {
		return Sealed{left: left{rows: int64(len(batch.rows)), bytes: int64(batch.bytes), oldest: batch.rows[0].At, counted: true}}, nil
	}
	if !exists {
		h = newHead(scope, tenantOf(scope, batch.rows))
		if err := s.register(ctx, scope); err != nil {
			return Sealed{}, err
		}
	}
	return s.seal(ctx, scope, h, batch, final)
}

// batch is rows in their order, at most one segment's.
type batch struct {
	rows  []ledger.Row
	bytes int
	full  bool // more than these make no segment
}

func (s *Sealer) batch(ctx context.Context, scope ledger.Scope, after string) (batch, error) {
	var b batch
	cut := s.Backlog.cut
	for !b.full {
		want := min(pageRows, cut.Rows-len(b.rows))
		page, err := s.Store.Rows(ctx, scope, ledger.RowRange{After: after, Limit: want})
		if err != nil {
			return b, fmt.Errorf("read unsealed rows: %w", err)
		}
		for _, r := range page {
			b.rows = append(b.rows, r)
			b.bytes += len(r.Data)
			after = r.Cursor
			if b.full = len(b.rows) >= cut.Rows || b.bytes >= cut.Bytes; b.full {
				break
			}
		}
		if len(page) < want {
			break
		}
	}
	return b, nil
}

// tenantOf is the tenant whose log begins with the rows. A tenant's first row
// tells of its creation.
func tenantOf(scope ledger.Scope, rows []ledger.Row) string {
	if scope == ledger.Platform {
		return ""
	}
	for _, r := range rows {
		if row, err := audit.Decode(r.Data); err == nil && row.Tenant != "" {
			return row.Tenant
		}
	}
	return ""
}

// register notes the scope as one that has an archive, before it has.
func (s *Sealer) register(ctx context.Context, scope ledger.Scope) error {
	at := s.Store.Now()
	for range maxDecisions {
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: at,
			Index: []ledger.Entry{archivedEntry(scope)},
		}
		res, err := apply(ctx, s.Store, ledger.Platform, step)
		if err != nil {
			return fmt.Errorf("note archived scope: %w", err)
		}
		if res.Applied {
			return nil
		}
		at = res.Now
	}
	return fmt.Errorf("note archived scope: %w", ledger.ErrUnavailable)
}

// prepare makes sure that the archive is the right one, for each segment anew:
// what it is mounted on may go while the gateway runs, and the empty folder below
// would take segments just as well. And, once, that the key is known that will
// sign.
func (s *Sealer) prepare(ctx context.Context) error {
	if m := s.known.Load(); m != nil {
		return foreign(compareMarker(ctx, s.Storage, *m))
	}
	m, err := recognise(ctx, s.Store, s.Storage)
	if err != nil {
		return foreign(err)
	}
	if err := announce(ctx, s.Store, s.Signer.SigningKeys()[0]); err != nil {
		return err
	}
	s.known.Store(&m)
	return nil
}

// foreign says that the storage failed, unless it was the store.
func foreign(err error) error {
	if err == nil || errors.Is(err, ledger.ErrUnavailable) {
		return err
	}
	return archiveError{err}
}

func (s *Sealer) seal(ctx context.Context, scope ledger.Scope, h Head, b batch, final bool) (Sealed, error) {
	ctx, cancel := context.WithTimeout(ctx, storagePatience)
	defer cancel()
	if err := s.prepare(ctx); err != nil {
		return Sealed{}, err
	}
	e, err := s.store(ctx, scope, h, b, final)
	if err != nil {
		s.discard(ctx, e)
		return Sealed{}, archiveError{err}
	}
	became, err := s.record(ctx, scope, h, e, b)
	switch {
	case became == doubtful:
		return Sealed{}, err // its objects stay, for it may be recorded
	case became == refused:
		s.discard(ctx, e)
		return Sealed{again: err == nil}, err
	}
	s.succeeded(ctx, len(b.rows))
	return Sealed{Rows: len(b.rows), Final: final}, nil
}

// store puts a segment and its filter into the archive and reads both back.
func (s *Sealer) store(ctx context.Context, scope ledger.Scope, h Head, b batch, final bool) (Entry, error) {
	at := s.Store.Now().Truncate(time.Millisecond)
	from, to, cursor := at, at, h.Cursor
	if n := len(b.rows); n > 0 {
		from, to, cursor = b.rows[0].At, b.rows[n-1].At, b.rows[n-1].Cursor
	}
	if at.Before(to) {
		at = to // a guess of the store's clock may be behind it
	}
	build := begin(h, scope, from, b.bytes)
	terms := map[string]struct{}{}
	note := func(term []byte) {
		if _, noted := terms[string(term)]; !noted {
			terms[string(term)] = struct{}{}
		}
	}
	for _, r := range b.rows {
		row, readable, err := build.add(r)
		if err != nil {
			return Entry{}, err
		}
		if s.Terms != nil && readable {
			s.Terms(row, note)
		}
	}
	c, text := build.close(s.Signer, at, final)
	e := Entry{
		V: recordVersion, Number: c.Segment, First: build.header.First, Last: c.Seq, From: from.UTC(), To: to.UTC(), Cursor: cursor,
		Head: c.Head, At: at.UTC(), Final: final, KeyID: c.KeyID, Signature: c.Signature, Size: int64(len(text)),
	}
	var err error
	if e.Object, err = store(ctx, s.Storage, scope, e.Number, segmentSuffix, s.codec.pack.EncodeAll(text, nil)); err != nil {
		return e, err
	}
	if s.Terms != nil {
		e.Terms, err = store(ctx, s.Storage, scope, e.Number, termsSuffix, NewTerms(terms).Encode())
	}
	return e, err
}

// record moves the head in one step that expects the head the segment continues.
// Refused without an error means that another segment was recorded instead.
func (s *Sealer) record(ctx context.Context, scope ledger.Scope, h Head, e Entry, b batch) (verdict, error) {
	keep, ok, err := s.Retention(ctx, scope)
	if err != nil {
		return refused, fmt.Errorf("read retention: %w", err)
	}
	for range maxDecisions {
		fetch := []ledger.Fetch{{Key: headKey()}}
		if s.Derivation != nil {
			fetch = append(fetch, s.Derivation.Fetch(h.Cursor, b.rows)...)
		}
		seen, err := s.Store.Read(ctx, scope, fetch...)
		if err != nil {
			return refused, fmt.Errorf("read before sealing: %w", err)
		}
		now, _, err := headOf(seen)
		if err != nil {
			return refused, err
		}
		if now.version != h.version {
			return refused, nil
		}
		next := h
		next.Number, next.Seq, next.Hash, next.Cursor, next.Final = e.Number, e.Last, e.Head, e.Cursor, e.Final
		if ok {
			next.Retention = keep
		}
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: seen.Now,
			Expect: []ledger.Expect{{Key: headKey(), Version: h.version}},
			Put:    []ledger.Put{{Key: headKey(), Data: encode(next)}, {Key: entryKey(e.Number), Data: encode(e)}},
		}
		if s.Derivation != nil && len(b.rows) > 0 {
			if err := s.Derivation.Fold(&step, seen, h.Cursor, b.rows); err != nil {
				return refused, fmt.Errorf("derive from rows: %w", err)
			}
		}
		res, err := apply(ctx, s.Store, scope, step)
		if err != nil {
			became := refused
			if errors.Is(err, ledger.ErrUnavailable) {
				became = doubtful
			}
			return became, fmt.Errorf("record segment: %w", err)
		}
		if res.Applied {
			return recorded, nil
		}
	}
	return refused, fmt.Errorf("record segment: %w", ledger.ErrUnavailable)
}

// discard removes the objects of a segment that was not recorded. What it cannot
// remove is left to retention, which goes by number.
func (s *Sealer) discard(ctx context.Context, e Entry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer cancel()
	for _, o := range []Object{e.Object, e.Terms} {
		if o.Name == "" {
			continue
		}
		if err := s.Storage.Delete(ctx, o.Name); err != nil {
			s.Logger.WarnContext(ctx, "an object that came to nothing stays in the audit archive", "error", err)
		}
	}
}

// Again says that another sealer was first, and that there may be more to seal.
func (s Sealed) Again() bool { return s.again }
