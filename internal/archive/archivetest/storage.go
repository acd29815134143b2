package archivetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
)

// Storage checks what archive.Storage promises. The storage must be empty.
func Storage(t *testing.T, s archive.Storage) {
	ctx := t.Context()
	_, err := s.Get(ctx, "scope/1.ndjson.zst")
	require.ErrorIs(t, err, archive.ErrNoObject)
	names, err := s.List(ctx, "scope/", 10)
	require.NoError(t, err)
	require.Empty(t, names)
	require.NoError(t, s.Delete(ctx, "scope/1.ndjson.zst"), "what is not there is gone already")

	large := []byte(strings.Repeat("\x00\xffaudit", 200_000))
	want := map[string][]byte{
		"archive-id": []byte("id"), "scope/0002-b.terms": {}, "scope/0001-a.ndjson.zst": large, "scope/0010-c.ndjson.zst": []byte("three"),
		"scope2/0001-a.ndjson.zst": []byte("another's"),
	}
	for name, data := range want {
		require.NoError(t, s.Put(ctx, name, data), name)
	}
	for name, data := range want {
		got, err := s.Get(ctx, name)
		require.NoError(t, err, name)
		require.Equal(t, len(data), len(got), name)
		require.Equal(t, string(data), string(got), name)
	}
	names, err = s.List(ctx, "scope/", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"scope/0001-a.ndjson.zst", "scope/0002-b.terms", "scope/0010-c.ndjson.zst"}, names)
	names, err = s.List(ctx, "scope/", 2)
	require.NoError(t, err)
	require.Equal(t, []string{"scope/0001-a.ndjson.zst", "scope/0002-b.terms"}, names)
	names, err = s.List(ctx, "scope/0001", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"scope/0001-a.ndjson.zst"}, names)

	require.NoError(t, s.Put(ctx, "archive-id", []byte("other")))
	got, err := s.Get(ctx, "archive-id")
	require.NoError(t, err)
	require.Equal(t, "other", string(got))
	for name := range want {
		require.NoError(t, s.Delete(ctx, name))
		_, err := s.Get(ctx, name)
		require.ErrorIs(t, err, archive.ErrNoObject)
	}
	names, err = s.List(ctx, "scope/", 10)
	require.NoError(t, err)
	require.Empty(t, names)
}
