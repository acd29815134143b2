package connectors_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

// register puts a manifest on the shelf, as another replica would.
func (s *shelf) register(name, version, manifest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := connectors.Sum(sha256.Sum256([]byte(manifest)))
	s.bySum[sum] = []byte(manifest)
	s.list = append(s.list, connectors.Registration{Name: name, Version: version, Sum: sum})
	s.revision++
}

func (s *shelf) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
	s.revision++
}

func (s *shelf) Registered(context.Context) (string, []connectors.Registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.Itoa(s.revision), append([]connectors.Registration(nil), s.list...), s.err
}

func TestRegisteredVersionsAreLoadedAndGo(t *testing.T) {
	s := newShelf()
	r := open(t, connectors.Options{Keeper: s, Shelf: s, Dir: t.TempDir()})
	require.NoError(t, r.Reload(t.Context()))
	_, err := r.Lookup(t.Context(), "acme@1")
	require.ErrorIs(t, err, connectors.ErrUnknownConnector)

	s.register("acme", "1.0.0", "acme 1.0.0")
	got, err := r.Lookup(t.Context(), "acme@1")
	require.NoError(t, err, "a look-up that misses asks the shelf")
	require.True(t, got.Claimable, "its bytes are kept: that is where they came from")

	s.register("acme", "1.1.0", "acme 1.1.0")
	require.Equal(t, "1.0.0", version(t, r, "acme@1"))
	require.NoError(t, r.Refresh(t.Context()))
	require.Equal(t, "1.1.0", version(t, r, "acme@1"))
	require.NoError(t, r.Reload(t.Context()), "the folder knows nothing of them, and they stay")
	require.NoError(t, r.Keep(t.Context()))
	got, err = r.Lookup(t.Context(), "acme@1")
	require.NoError(t, err)
	require.True(t, got.Claimable)

	s.clear()
	require.NoError(t, r.Refresh(t.Context()))
	_, err = r.Lookup(t.Context(), "acme@1")
	require.ErrorIs(t, err, connectors.ErrUnknownConnector)
	c, err := r.Exact(t.Context(), sha256.Sum256([]byte("acme 1.0.0")))
	require.NoError(t, err, "what was written with it is judged by it still")
	require.Equal(t, "1.0.0", c.Spec().Version)
}

func TestShelfThatFailsChangesNothing(t *testing.T) {
	s := newShelf()
	s.register("acme", "1.0.0", "acme 1.0.0")
	r := open(t, connectors.Options{Keeper: s, Shelf: s})
	require.NoError(t, r.Refresh(t.Context()))
	s.fail(errors.New("store away"))
	require.ErrorContains(t, r.Refresh(t.Context()), "store away")
	require.Equal(t, "1.0.0", version(t, r, "acme@1"))
}

func TestRegisteredVersionThatIsBadIsLeftOutAndNamedOnce(t *testing.T) {
	s := newShelf()
	s.register("bad", "1.0.0", "bad")
	s.register("acme", "1.0.0", "acme 1.0.0")
	s.register("acme", "1.1.0", "acme 1.1.0 /nonce")
	s.register("other", "1.0.0", "acme 3.0.0")
	r := open(t, connectors.Options{Keeper: s, Shelf: s})
	err := r.Refresh(t.Context())
	require.ErrorContains(t, err, "registered/bad/1.0.0:7 (/x): this is bad")
	require.ErrorContains(t, err, "registered/acme/1.1.0: action create_thing: identity.ignore differs")
	require.ErrorContains(t, err, "registered/other/1.0.0 (/metadata)")
	require.NoError(t, r.Refresh(t.Context()))
	require.Equal(t, "1.0.0", version(t, r, "acme@1"))
}

func TestFileThatLeavesARegisteredVersionNoRoomIsRefused(t *testing.T) {
	s, dir := newShelf(), t.TempDir()
	r := open(t, connectors.Options{Keeper: s, Shelf: s, Dir: dir})
	require.NoError(t, r.Reload(t.Context()))
	s.register("acme", "1.0.0", "acme 1.0.0")
	require.NoError(t, r.Refresh(t.Context()))
	put(t, dir, "acme", "1.0.0", "acme 1.0.0 /other")
	require.ErrorContains(t, r.Reload(t.Context()), "identity.ignore differs")
	put(t, dir, "acme", "1.0.0", "acme  1.0.0") // other bytes under the same version
	require.ErrorContains(t, r.Reload(t.Context()), "same name and version")
	c, err := r.Lookup(t.Context(), "acme@1")
	require.NoError(t, err)
	require.Equal(t, connectors.Sum(sha256.Sum256([]byte("acme 1.0.0"))), c.Spec().Sum)
}

func TestExamine(t *testing.T) {
	s := newShelf()
	r := open(t, connectors.Options{Keeper: s, Shelf: s, Builtin: []connectors.Source{{File: "b", Manifest: []byte("built 1.0.0")}}})
	examine := func(name, version, manifest string) (connectors.Standing, error) {
		return r.Examine(t.Context(), name, version, []byte(manifest))
	}
	st, err := examine("acme", "1.0.0", "acme 1.0.0")
	require.NoError(t, err)
	require.True(t, st.Newest)
	require.False(t, st.Exists)
	s.register("acme", "1.0.0", "acme 1.0.0")
	st, err = examine("acme", "1.0.0", "acme 1.0.0")
	require.NoError(t, err)
	require.True(t, st.Exists)
	st, err = examine("acme", "1.0.1", "acme 1.0.1")
	require.NoError(t, err)
	require.True(t, st.Newest)
	s.register("acme", "1.2.0", "acme 1.2.0")
	st, err = examine("acme", "1.1.0", "acme 1.1.0")
	require.NoError(t, err)
	require.False(t, st.Newest)

	_, err = examine("acme", "1.0.0", "acme  1.0.0")
	require.ErrorIs(t, err, connectors.ErrTaken)
	_, err = examine("built", "1.0.0", "built  1.0.0")
	require.ErrorIs(t, err, connectors.ErrTaken)
	_, err = examine("acme", "1.3.0", "acme 1.3.1")
	require.ErrorContains(t, err, "the name and version differ from")
	_, err = examine("acme", "1.3.0", "acme 1.3.0 /nonce")
	require.ErrorContains(t, err, "identity.ignore differs")
	s.latest["gone@1"] = []byte("gone 1.0.0 /a")
	_, err = examine("gone", "1.1.0", "gone 1.1.0")
	require.ErrorContains(t, err, "identity.ignore differs", "what is only kept binds too")

	acme := connectors.Registration{Name: "acme", Version: "1.0.0"}
	require.False(t, r.Alone(acme))
	s.clear()
	s.register("acme", "1.0.0", "acme 1.0.0")
	require.NoError(t, r.Refresh(t.Context()))
	require.True(t, r.Alone(acme))
}

func TestWhatEveryReplicaHasIsNotAlone(t *testing.T) {
	s, dir := newShelf(), t.TempDir()
	put(t, dir, "local", "1.0.0", "local 1.0.0")
	r := open(t, connectors.Options{Keeper: s, Shelf: s, Dir: dir, Builtin: []connectors.Source{{File: "b", Manifest: []byte("built 1.0.0")}}})
	require.NoError(t, r.Reload(t.Context()))
	for _, name := range []string{"built", "local"} {
		s.register(name, "1.1.0", name+" 1.1.0")
	}
	require.NoError(t, r.Refresh(t.Context()))
	require.False(t, r.Alone(connectors.Registration{Name: "built", Version: "1.1.0"}), "the built-in one serves its connections")
	require.True(t, r.Alone(connectors.Registration{Name: "local", Version: "1.1.0"}), "other replicas may not have the file")
}
