package trail_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/trail"
)

// end closes a log with a segment without rows, as a sealer does for a deleted
// tenant whose last rows were sealed before.
func (s *shelf) end() {
	last := s.parts[len(s.parts)-1].entry
	s.parts = append(s.parts, part{entry: archive.Entry{
		Number: last.Number + 1, First: last.Last + 1, Last: last.Last, From: last.To, To: last.To, Cursor: last.Cursor, Final: true,
	}})
}

// The last segment of a log may hold nothing but its checkpoint, and then has the
// same place as the one before it.
func TestAnEmptyLastSegmentIsExportedOnce(t *testing.T) {
	for _, n := range []int{1, 15, 16, 17, 32} {
		store, _ := openStore(t)
		shelf := newShelf(store)
		log := trail.New(store, shelf)
		put(t, log, numbered(1, n)...)
		for range n {
			shelf.seal(t, 1)
		}
		shelf.end()
		want := ""
		for _, p := range shelf.parts {
			text, err := shelf.Text(t.Context(), p.entry)
			require.NoError(t, err)
			want += string(text)
		}
		require.Equal(t, want, export(t, log, trail.Export{}), "%d segments", n)
		lines := strings.SplitAfter(strings.TrimSuffix(want, "\n"), "\n")
		for i := len(lines) - 5; i <= len(lines); i++ {
			if i < 1 || strings.HasPrefix(lines[i-1], `{"type":"segment"`) {
				continue
			}
			var rest bytes.Buffer
			require.NoError(t, log.Export(t.Context(), scope, trail.Export{Cursor: cursorBehind(t, lines[:i])}, &rest))
			require.Equal(t, want, strings.Join(lines[:i], "")+cut(i, lines, rest.String()), "behind line %d of %d", i, len(lines))
		}
	}
}

func cut(i int, lines []string, rest string) string {
	if i == len(lines) {
		return "\n" + rest // the last line of lines has lost its break
	}
	return rest
}
