package trail

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/audit"
)

// ErrCursor: a cursor that this query did not return.
var ErrCursor = errors.New("cursor is not one of this query")

// tieSize is how many bytes of a cursor tie it to its query. They catch a
// client that changes its filter between pages, not one that forges cursors: a
// forged one names another place in the same scope, which its maker may read.
const tieSize = 8

// tie condenses what a query selects and in which order.
func tie(f audit.Filter, newest bool) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %s %t", f.Terms(),
		f.Since.UTC().Format(time.RFC3339Nano), f.Until.UTC().Format(time.RFC3339Nano), newest))
	return sum[:tieSize]
}

func formatCursor(place string, f audit.Filter, newest bool) string {
	return base64.RawURLEncoding.EncodeToString(append(tie(f, newest), place...))
}

// parseCursor returns the store's cursor inside one of ours, "" for "".
func parseCursor(cursor string, f audit.Filter, newest bool) (string, error) {
	if cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	oneSpelling := base64.RawURLEncoding.EncodeToString(raw) == cursor // the decoder passes over line breaks
	if err != nil || !oneSpelling || len(raw) <= tieSize || !bytes.Equal(raw[:tieSize], tie(f, newest)) {
		return "", ErrCursor
	}
	for _, c := range raw[tieSize:] {
		if c <= ' ' || c > '~' { // ledger.Row promises printable ASCII
			return "", ErrCursor
		}
	}
	return string(raw[tieSize:]), nil
}
