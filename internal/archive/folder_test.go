package archive_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/archive/archivetest"
)

func TestStorages(t *testing.T) {
	folder, err := archive.NewFolder(filepath.Join(t.TempDir(), "some", "audit"))
	require.NoError(t, err)
	archivetest.Storage(t, folder)
	archivetest.Storage(t, archivetest.NewMemory())
}

// TestAFolderIsForItsOwnerAlone: nobody else reads a tenant's log.
func TestAFolderIsForItsOwnerAlone(t *testing.T) {
	root := filepath.Join(t.TempDir(), "audit")
	folder, err := archive.NewFolder(root)
	require.NoError(t, err)
	require.NoError(t, folder.Put(t.Context(), "scope/1.terms", []byte("x")))
	require.NoError(t, os.WriteFile(filepath.Join(root, "scope", ".new-left"), nil, 0o600))
	names, err := folder.List(t.Context(), "scope/", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"scope/1.terms"}, names, "a file that a crash left is no object")
	require.NoError(t, filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077)
		return nil
	}))
	for _, name := range []string{"../x", "/etc/passwd", "a/../../x", ""} {
		require.Error(t, folder.Put(t.Context(), name, []byte("x")), name)
	}
}
