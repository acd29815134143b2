package archive

import (
	"context"
	"fmt"
	"sort"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Reader reads what is sealed. It is safe for concurrent use.
type Reader struct {
	store   ledger.Store
	storage Storage
	codec   *codec
	terms   *termsCache
	known   *entryCache
}

// NewReader returns the reader of what sealers over the same store have put into
// the storage.
func NewReader(store ledger.Store, storage Storage) (*Reader, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	return newReader(store, storage, c), nil
}

func newReader(store ledger.Store, storage Storage, c *codec) *Reader {
	return &Reader{store: store, storage: storage, codec: c, terms: newTermsCache(termsCacheBytes), known: newEntryCache()}
}

// Head returns how far a scope is sealed; ok is false if nothing of it is. Rows
// up to Head.Cursor may be gone from the store; those behind it are not.
func (r *Reader) Head(ctx context.Context, scope ledger.Scope) (h Head, ok bool, err error) {
	return readHead(ctx, r.store, scope)
}

func readHead(ctx context.Context, store ledger.Store, scope ledger.Scope) (Head, bool, error) {
	snap, err := store.Read(ctx, scope, ledger.Fetch{Key: headKey()})
	if err != nil {
		return Head{}, false, fmt.Errorf("read audit head: %w", err)
	}
	return headOf(snap)
}

// Range selects segments. It may select a few that have no row in it.
type Range struct {
	From, To time.Time // the store's time of rows, From <= at < To; zero: unbounded
	After    string    // rows behind this cursor in the direction of reading; "": all
	Behind   uint64    // segments with a greater number; 0: all
	Newest   bool      // newest first
	Limit    int       // at most so many segments; must be positive
}

// entriesAtOnce is how many entries one read of the store fetches.
const entriesAtOnce = 32

// Entries lists segments in the direction of reading. To read on, ask for what
// is behind the last row of the last entry (its Cursor), or newest first for what
// is behind the first row of it. A final segment without rows has the cursor of
// the one before it: whoever wants that one too goes on by Number.
func (r *Reader) Entries(ctx context.Context, scope ledger.Scope, rg Range) ([]Entry, error) {
	h, ok, err := r.Head(ctx, scope)
	if err != nil || !ok {
		return nil, err
	}
	s := search{ctx: ctx, reader: r, scope: scope}
	first, last := max(h.Kept.Number, rg.Behind+1), h.Number
	// Rows of later segments have later cursors and are not older, so each
	// condition cuts off one end.
	if !rg.From.IsZero() {
		first = s.first(first, last, func(e Entry) bool { return !e.To.Before(rg.From) })
	}
	if !rg.To.IsZero() {
		last = s.first(first, last, func(e Entry) bool { return !e.From.Before(rg.To) }) - 1
	}
	if rg.After != "" && rg.Newest {
		last = min(last, s.first(first, last, func(e Entry) bool { return e.Cursor >= rg.After }))
	} else if rg.After != "" {
		first = s.first(first, last, func(e Entry) bool { return e.Cursor > rg.After })
	}
	if s.err != nil {
		return nil, s.err
	}
	return r.list(ctx, scope, first, last, rg)
}

// list reads the entries first..last in the direction of reading.
func (r *Reader) list(ctx context.Context, scope ledger.Scope, first, last uint64, rg Range) ([]Entry, error) {
	var out []Entry
	for first <= last && len(out) < rg.Limit {
		n := min(uint64(entriesAtOnce), uint64(rg.Limit-len(out)), last-first+1)
		from := first
		if rg.Newest {
			from = last - n + 1
			last = from - 1
		} else {
			first += n
		}
		found, err := r.entries(ctx, scope, from, n)
		if err != nil {
			return nil, err
		}
		for i := range found {
			if rg.Newest {
				out = append(out, found[len(found)-1-i])
			} else {
				out = append(out, found[i])
			}
		}
	}
	return out, nil
}

func (r *Reader) entries(ctx context.Context, scope ledger.Scope, from, n uint64) ([]Entry, error) {
	return entries(ctx, r.store, scope, from, n, r.known.decode)
}

// entries reads n entries from a number on. Those that retention has removed
// meanwhile are left out.
func entries(ctx context.Context, store ledger.Store, scope ledger.Scope, from, n uint64, decode func(ledger.Value) (Entry, error)) ([]Entry, error) {
	fetch := make([]ledger.Fetch, 0, n)
	for i := range n {
		fetch = append(fetch, ledger.Fetch{Key: entryKey(from + i)})
	}
	snap, err := store.Read(ctx, scope, fetch...)
	if err != nil {
		return nil, fmt.Errorf("read audit catalog: %w", err)
	}
	out := make([]Entry, 0, n)
	for i := range n {
		v, ok := snap.Get(entryKey(from + i))
		if !ok {
			continue
		}
		e, err := decode(v)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// search looks for entries by halving; the first error ends it.
type search struct {
	ctx    context.Context
	reader *Reader
	scope  ledger.Scope
	err    error
}

// first is the number of the first entry of first..last for which yes holds,
// last+1 if it holds for none. Yes must hold for all behind one for which it does.
// An entry that was removed meanwhile is older than all there are.
func (s *search) first(first, last uint64, yes func(Entry) bool) uint64 {
	if s.err != nil || first > last {
		return first
	}
	i := sort.Search(int(last-first+1), func(i int) bool {
		if s.err != nil {
			return true
		}
		found, err := s.reader.entries(s.ctx, s.scope, first+uint64(i), 1)
		s.err = err
		return err == nil && len(found) == 1 && yes(found[0])
	})
	return first + uint64(i)
}

// Text returns the lines of a segment as they were stored, the checkpoint
// included. The error wraps ErrDamaged if the archive no longer has them.
func (r *Reader) Text(ctx context.Context, e Entry) ([]byte, error) {
	packed, err := load(ctx, r.storage, e.Object)
	if err != nil {
		return nil, err
	}
	text, err := r.codec.unpack.DecodeAll(packed, make([]byte, 0, min(e.Size, MaxSegment)))
	if err != nil {
		return nil, fmt.Errorf("%w: %s cannot be unpacked", ErrDamaged, e.Object.Name)
	}
	return text, nil
}

// Rows returns the rows of a segment, oldest first.
func (r *Reader) Rows(ctx context.Context, e Entry) ([]Row, error) {
	text, err := r.Text(ctx, e)
	if err != nil {
		return nil, err
	}
	return parseRows(text, e.Rows())
}

// MayHold says whether the segment may have rows with each of the terms. When the
// filter is missing or damaged it may: then the rows themselves say.
func (r *Reader) MayHold(ctx context.Context, e Entry, terms []string) (bool, error) {
	if len(terms) == 0 || e.Terms.Name == "" {
		return true, nil
	}
	if t, ok := r.terms.get(e.Terms.Name); ok {
		return t.MayAll(terms), nil
	}
	t, ok := r.filter(ctx, e)
	if !ok {
		return true, ctx.Err()
	}
	r.terms.put(e.Terms.Name, t)
	return t.MayAll(terms), nil
}

// filter loads the filter of a segment. It is not there if it cannot be had,
// whatever the cause: it saves reading rows and is nothing to rely on.
func (r *Reader) filter(ctx context.Context, e Entry) (Terms, bool) {
	data, err := load(ctx, r.storage, e.Terms)
	if err != nil {
		return Terms{}, false
	}
	t, err := DecodeTerms(data)
	return t, err == nil
}
