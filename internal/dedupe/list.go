package dedupe

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Found is an action as it is looked at.
type Found struct {
	Record  *Record
	Answer  []byte // of a success whose window has not ended; Get has it, List has not
	Replays int64
	Now     time.Time

	// Lost is the id of an action in a listing that cannot be read, with the time
	// it is listed under; Record is nil then.
	Lost   ActionID
	LostAt time.Time
}

// Get returns one action of a scope, or ErrNotFound.
func (c *Claims) Get(ctx context.Context, scope ledger.Scope, id ActionID) (Found, error) {
	snap, err := c.store.Read(ctx, scope,
		ledger.Fetch{Key: actionKey(ledger.Action, id)},
		ledger.Fetch{Key: actionKey(ledger.Answer, id)},
		ledger.Fetch{Key: actionKey(ledger.Replays, id)})
	if err != nil {
		return Found{}, fmt.Errorf("read action: %w", err)
	}
	return c.found(snap, id)
}

// Request returns the sealed request of an unsettled action, or ErrNotFound.
func (c *Claims) Request(ctx context.Context, scope ledger.Scope, id ActionID) ([]byte, error) {
	return c.kept(ctx, scope, actionKey(ledger.Request, id))
}

// kept returns sealed bytes that are kept beside an unsettled action.
func (c *Claims) kept(ctx context.Context, scope ledger.Scope, key ledger.Key) ([]byte, error) {
	snap, err := c.store.Read(ctx, scope, ledger.Fetch{Key: key})
	if err != nil {
		return nil, fmt.Errorf("read what is kept: %w", err)
	}
	v, ok := snap.Get(key)
	if !ok {
		return nil, ErrNotFound
	}
	return v.Data, nil
}

func (c *Claims) found(snap ledger.Snapshot, id ActionID) (Found, error) {
	cur, ok, err := recordIn(snap, id)
	if err != nil {
		return Found{}, err
	}
	if !ok {
		return Found{}, ErrNotFound
	}
	f := Found{Record: cur.Record, Now: snap.Now}
	if f.Answer, err = answerIn(snap, id); err != nil {
		return Found{}, err
	}
	if v, ok := snap.Get(actionKey(ledger.Replays, id)); ok {
		if f.Replays, err = strconv.ParseInt(string(v.Data), 10, 64); err != nil {
			return Found{}, fmt.Errorf("decode replay count: %w", ErrUnreadable)
		}
	}
	return f, nil
}

// Filter selects actions; zero members select all.
type Filter struct {
	State              State
	Connection, Action string
	KeyID              string // of the API key that claimed
	Since, Until       time.Time
}

// matches says whether a listing shows an action. One that cannot be read might
// be anything, so it is shown whatever state or connection is asked for, though
// not to a key that sees its own only.
func (f *Filter) matches(found *Found) bool {
	r := found.Record
	if r == nil {
		return found.Lost != ActionID{} && f.KeyID == ""
	}
	return (f.State == 0 || r.State == f.State) &&
		(f.Connection == "" || r.Connection == f.Connection) &&
		(f.Action == "" || r.Action == f.Action) &&
		(f.KeyID == "" || r.KeyID == f.KeyID)
}

// ErrCursor: a cursor that List did not make.
var ErrCursor = errors.New("cursor is not one of this listing")

// scanLimit bounds how many actions one List looks at. A filter that few match
// gives a short page, or an empty one, with a cursor to go on from.
const scanLimit = 2000

// List returns actions newest first, without their answers, and the cursor of
// the next page, "" on the last one.
func (c *Claims) List(ctx context.Context, scope ledger.Scope, f Filter, cursor string, limit int) ([]Found, string, error) {
	after, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	var out []Found
	for seen := 0; seen < scanLimit; {
		entries, err := c.store.Entries(ctx, scope, ledger.EntryRange{
			Index: ledger.ByCreated, From: f.Since, To: f.Until, After: after, Newest: true, Limit: 200,
		})
		if err != nil {
			return nil, "", fmt.Errorf("list actions: %w", err)
		}
		found, err := c.load(ctx, scope, entries)
		if err != nil {
			return nil, "", err
		}
		for i := range entries {
			after = &entries[i]
			seen++
			if !f.matches(&found[i]) {
				continue
			}
			if out = append(out, found[i]); len(out) == limit {
				return out, formatCursor(after), nil
			}
		}
		if len(entries) < 200 {
			return out, "", nil
		}
	}
	return out, formatCursor(after), nil
}

// load reads the actions of index entries, without their answers: a page of
// those can be hundreds of megabytes. Actions that have expired are zero, and of
// those that cannot be read there is the id only.
func (c *Claims) load(ctx context.Context, scope ledger.Scope, entries []ledger.Entry) ([]Found, error) {
	fetch := make([]ledger.Fetch, 0, 2*len(entries))
	for _, e := range entries {
		for _, kind := range []ledger.Kind{ledger.Action, ledger.Replays} {
			fetch = append(fetch, ledger.Fetch{Key: ledger.Key{Kind: kind, ID: e.Member}})
		}
	}
	if len(fetch) == 0 {
		return nil, nil
	}
	snap, err := c.store.Read(ctx, scope, fetch...)
	if err != nil {
		return nil, fmt.Errorf("read actions: %w", err)
	}
	out := make([]Found, len(entries))
	for i, e := range entries {
		if len(e.Member) != len(ActionID{}) {
			return nil, ErrUnreadable
		}
		id := ActionID([]byte(e.Member))
		f, err := c.found(snap, id)
		switch {
		case errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrUnreadable):
			out[i] = Found{Lost: id, LostAt: e.Score, Now: snap.Now}
		case err != nil:
			return nil, err
		default:
			out[i] = f
		}
	}
	return out, nil
}

func formatCursor(e *ledger.Entry) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(e.Score.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(raw, e.Member...))
}

func parseCursor(s string) (*ledger.Entry, error) {
	if s == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) != 8+len(ActionID{}) {
		return nil, ErrCursor
	}
	ms := int64(binary.BigEndian.Uint64(raw))
	return &ledger.Entry{Index: ledger.ByCreated, Score: time.UnixMilli(ms).UTC(), Member: string(raw[8:])}, nil
}

// Unsettled says whether a connection has writes in flight or held.
func (c *Claims) Unsettled(ctx context.Context, scope ledger.Scope, connectionID string) (bool, error) {
	for _, index := range []ledger.Index{ledger.ByLease, ledger.ByHold} {
		found, err := c.anyUnsettled(ctx, scope, index, connectionID)
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func (c *Claims) anyUnsettled(ctx context.Context, scope ledger.Scope, index ledger.Index, connectionID string) (bool, error) {
	const page = 200
	var after *ledger.Entry
	for {
		entries, err := c.store.Entries(ctx, scope, ledger.EntryRange{Index: index, After: after, Limit: page})
		if err != nil {
			return false, fmt.Errorf("list unsettled: %w", err)
		}
		found, err := c.load(ctx, scope, entries)
		if err != nil {
			return false, err
		}
		for _, f := range found {
			if f.Lost != (ActionID{}) {
				return false, ErrUnreadable // it may be one of this connection's
			}
			if f.Record != nil && f.Record.ConnectionID == connectionID && f.Record.State.Unsettled() {
				return true, nil
			}
		}
		if len(entries) < page {
			return false, nil
		}
		after = &entries[len(entries)-1]
	}
}
