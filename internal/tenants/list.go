package tenants

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// A member of the index by name is the kind of a value, a slash and its id, in
// every scope and every package. So one index serves all kinds, and whatever a
// scope has under a name can be found to be removed with it.

func indexed(k ledger.Key, created time.Time) ledger.Entry {
	return ledger.Entry{Index: ledger.ByName, Score: created, Member: string(rune(k.Kind)) + "/" + k.ID}
}

// keyOf is the key a member stands for.
func keyOf(member string) (ledger.Key, bool) {
	if len(member) < 2 || member[1] != '/' {
		return ledger.Key{}, false
	}
	return ledger.Key{Kind: ledger.Kind(member[0]), ID: member[2:]}, true
}

// MaxPage is the most tenants or keys one call lists.
const MaxPage = 1000

const (
	listBatch = 200
	// listScan bounds how many members one call looks at; members of other
	// kinds may stand between those that are asked for.
	listScan = 4000
)

// list returns the ids of one kind, oldest first, and the cursor of the next
// page, "" on the last.
func list(ctx context.Context, store ledger.Store, scope ledger.Scope, kind ledger.Kind, cursor string, limit int) (ids []string, next string, err error) {
	if limit < 1 || limit > MaxPage {
		return nil, "", ErrLimit
	}
	after, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	var last *ledger.Entry
	for range listScan / listBatch {
		found, err := store.Entries(ctx, scope, ledger.EntryRange{Index: ledger.ByName, After: after, Limit: listBatch})
		if err != nil {
			return nil, "", fmt.Errorf("list names: %w", err)
		}
		for i := range found {
			after = &found[i]
			key, ok := keyOf(after.Member)
			if !ok || key.Kind != kind {
				continue
			}
			if len(ids) == limit {
				return ids, formatCursor(last), nil
			}
			ids, last = append(ids, key.ID), after
		}
		if len(found) < listBatch {
			return ids, "", nil
		}
	}
	return ids, formatCursor(after), nil
}

func formatCursor(e *ledger.Entry) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(e.Score.UnixMilli()))
	return base64.RawURLEncoding.EncodeToString(append(raw, e.Member...))
}

func parseCursor(cursor string) (*ledger.Entry, error) {
	if cursor == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < 9 || len(raw) > 8+255 {
		return nil, ErrCursor
	}
	at := int64(binary.BigEndian.Uint64(raw))
	e := &ledger.Entry{Index: ledger.ByName, Score: time.UnixMilli(at).UTC(), Member: string(raw[8:])}
	if formatCursor(e) != cursor { // the decoder passes over line breaks
		return nil, ErrCursor
	}
	return e, nil
}
