package connections

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// MaxPage is the most connections one List returns.
const MaxPage = 1000

// Errors of List that the asker can mend.
var (
	// ErrCursor: a cursor that List did not make.
	ErrCursor = errors.New("cursor is not one of this listing")
	// ErrLimit: a page size outside 1..MaxPage.
	ErrLimit = fmt.Errorf("limit must be 1 to %d", MaxPage)
)

const (
	// memberPrefix keeps connections apart from other named things in the index
	// they share. Kind, slash, id is the form of all of them: by it the directory
	// of tenants clears what a deleted tenant leaves.
	memberPrefix = string(rune(ledger.Connection)) + "/"
	// batch is how many index entries are asked of the store at once, and
	// scanLimit how many one List looks at: a tenant may have many keys between
	// its connections, which makes a page short, never wrong.
	batch     = 200
	scanLimit = 4000
)

func entryOf(c *Connection) ledger.Entry {
	return ledger.Entry{Index: ledger.ByName, Score: c.CreatedAt, Member: memberPrefix + c.Name}
}

// List returns a scope's connections in the order of their creation and the
// cursor of the next page, "" on the last. A page may be short, even empty, and
// still have a next one. The error is ErrCursor, ErrLimit, or wraps
// ErrUnreadable or one of the store's.
func (b *Book) List(ctx context.Context, scope ledger.Scope, cursor string, limit int) (page []Connection, next string, err error) {
	if limit < 1 || limit > MaxPage {
		return nil, "", ErrLimit
	}
	after, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	entries, more, err := b.entries(ctx, scope, after, limit)
	if err != nil {
		return nil, "", err
	}
	if page, err = b.load(ctx, scope, entries); err != nil {
		return nil, "", err
	}
	if more != nil {
		next = formatCursor(more)
	}
	return page, next, nil
}

// entries finds up to limit entries of connections, and the entry to go on
// behind if there may be more.
func (b *Book) entries(ctx context.Context, scope ledger.Scope, after *ledger.Entry, limit int) (found []ledger.Entry, more *ledger.Entry, err error) {
	for range scanLimit / batch {
		some, err := b.store.Entries(ctx, scope, ledger.EntryRange{Index: ledger.ByName, After: after, Limit: batch})
		if err != nil {
			return nil, nil, fmt.Errorf("list connections: %w", err)
		}
		for i := range some {
			after = &some[i]
			if !strings.HasPrefix(after.Member, memberPrefix) || strings.Contains(after.Member[len(memberPrefix):], "/") {
				continue
			}
			if len(found) == limit {
				return found, &found[limit-1], nil // there is another one
			}
			found = append(found, *after)
		}
		if len(some) < batch {
			return found, nil, nil
		}
	}
	return found, after, nil
}

// load reads the connections of index entries. One that was deleted in between
// is left out; so is one made again since, which has an entry of its own.
func (b *Book) load(ctx context.Context, scope ledger.Scope, entries []ledger.Entry) ([]Connection, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	fetch := make([]ledger.Fetch, len(entries))
	for i, e := range entries {
		fetch[i].Key = keyOf(strings.TrimPrefix(e.Member, memberPrefix))
	}
	snap, err := b.store.Read(ctx, scope, fetch...)
	if err != nil {
		return nil, fmt.Errorf("read connections: %w", err)
	}
	page := make([]Connection, 0, len(entries))
	for i, e := range entries {
		c, err := find(snap, scope, fetch[i].Key.ID)
		switch {
		case errors.Is(err, ErrNotFound) || err == nil && !c.CreatedAt.Equal(e.Score):
		case err != nil:
			return nil, err
		default:
			page = append(page, *c)
		}
	}
	return page, nil
}

// Cursor is the place behind the connection in the listing: List goes on there.
func (c Connection) Cursor() string {
	e := entryOf(&c)
	return formatCursor(&e)
}

const scoreBytes = 8

// A cursor is the place of an entry: milliseconds, big-endian, and the member.
func formatCursor(e *ledger.Entry) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(e.Score.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(raw, e.Member...))
}

// parseCursor returns nil for "". Who forges a cursor names another place in the
// same scope, which is theirs to read.
func parseCursor(cursor string) (*ledger.Entry, error) {
	if cursor == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(raw) <= scoreBytes || len(raw) > scoreBytes+255 {
		return nil, ErrCursor
	}
	ms := binary.BigEndian.Uint64(raw)
	if ms > maxScore {
		return nil, ErrCursor
	}
	e := &ledger.Entry{Index: ledger.ByName, Score: time.UnixMilli(int64(ms)).UTC(), Member: string(raw[scoreBytes:])}
	if formatCursor(e) != cursor { // the decoder passes over line breaks
		return nil, ErrCursor
	}
	return e, nil
}

// maxScore is the end of the year 9999 in milliseconds.
const maxScore = 253402300799999
