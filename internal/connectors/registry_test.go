package connectors_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/connectortest"
)

// tiny compiles "name version [pointer…]" to a fake that ignores the pointers,
// and refuses all else.
func tiny(manifest []byte) (connectors.Connector, error) {
	fields := strings.Fields(string(manifest))
	if len(fields) < 2 || !strings.Contains(fields[1], ".") {
		return nil, &connectors.ManifestError{Problems: []connectors.ManifestProblem{{Line: 7, Pointer: "/x", Reason: "this is bad"}}}
	}
	f := connectortest.NewFake()
	f.SpecValue.Name, f.SpecValue.Version, f.SpecValue.Sum = fields[0], fields[1], sha256.Sum256(manifest)
	action := f.SpecValue.Actions["create_thing"]
	action.Ignore = fields[2:]
	f.SpecValue.Actions["create_thing"] = action
	return f, nil
}

// shelf is a Keeper in memory.
type shelf struct {
	mu     sync.Mutex
	bySum  map[connectors.Sum][]byte
	latest map[string][]byte
	err    error
	saves  int

	list     []connectors.Registration
	revision int
}

func newShelf() *shelf {
	return &shelf{bySum: map[connectors.Sum][]byte{}, latest: map[string][]byte{}}
}

func (s *shelf) Save(_ context.Context, pin string, sum connectors.Sum, manifest []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.bySum[sum], s.latest[pin] = manifest, manifest
	s.saves++
	return nil
}

func (s *shelf) Load(_ context.Context, sum connectors.Sum) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return found(s.bySum[sum], s.err)
}

func (s *shelf) Latest(_ context.Context, pin string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return found(s.latest[pin], s.err)
}

func (s *shelf) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func found(manifest []byte, err error) ([]byte, error) {
	if err == nil && manifest == nil {
		err = connectors.ErrNotKept
	}
	return manifest, err
}

func put(t *testing.T, dir, name, version, manifest string) string {
	t.Helper()
	file := filepath.Join(dir, name, version, "connector.yaml")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
	return file
}

func open(t *testing.T, opts connectors.Options) *connectors.Registry {
	t.Helper()
	opts.Compile = tiny
	r, err := connectors.NewRegistry(opts)
	require.NoError(t, err)
	return r
}

func version(t *testing.T, r *connectors.Registry, pin string) string {
	t.Helper()
	c, err := r.Lookup(t.Context(), pin)
	require.NoError(t, err)
	return c.Spec().Version
}

func TestLookupFindsTheNewestOfAMajor(t *testing.T) {
	dir := t.TempDir()
	for _, v := range []string{"1.2.0", "1.10.0", "1.9.9", "2.0.0"} {
		put(t, dir, "acme", v, "acme "+v)
	}
	put(t, dir, ".hidden", "1.0.0", "hidden 1.0.0")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o600))
	r := open(t, connectors.Options{Dir: dir, Builtin: []connectors.Source{{File: "b", Manifest: []byte("built 1.0.0")}}})
	_, err := r.Lookup(t.Context(), "acme@1")
	require.ErrorIs(t, err, connectors.ErrUnknownConnector, "the folder is read by Reload")
	require.NoError(t, r.Reload(t.Context()))
	require.Equal(t, "1.10.0", version(t, r, "acme@1"))
	require.Equal(t, "2.0.0", version(t, r, "acme@2"))
	require.Equal(t, "1.0.0", version(t, r, "built@1"))
	for _, pin := range []string{"acme@3", "acme", "acme@", "@1", "acme@1.2.0", "acme@01", "acme@-1", "hidden@1", ""} {
		_, err := r.Lookup(t.Context(), pin)
		require.ErrorIs(t, err, connectors.ErrUnknownConnector, pin)
	}
	var names []string
	for _, s := range r.Specs() {
		names = append(names, s.Major())
	}
	require.Equal(t, []string{"acme@1", "acme@2", "built@1"}, names)

	c, err := r.Exact(t.Context(), sha256.Sum256([]byte("acme 1.2.0")))
	require.NoError(t, err)
	require.Equal(t, "1.2.0", c.Spec().Version)
	_, err = r.Exact(t.Context(), connectors.Sum{})
	require.ErrorIs(t, err, connectors.ErrUnknownConnector)
}

func TestBadBuiltinStopsTheStart(t *testing.T) {
	_, err := connectors.NewRegistry(connectors.Options{Compile: tiny, Builtin: []connectors.Source{{File: "b.yaml", Manifest: []byte("bad")}}})
	require.ErrorContains(t, err, "b.yaml:7 (/x): this is bad")
}

func TestBadFileLeavesTheSnapshotAlone(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "acme", "1.0.0", "acme 1.0.0")
	r := open(t, connectors.Options{Dir: dir})
	require.NoError(t, r.Reload(t.Context()))

	file := put(t, dir, "acme", "1.0.0", "broken")
	put(t, dir, "other", "1.0.0", "other 1.0.0")
	err := r.Reload(t.Context())
	require.ErrorContains(t, err, file+":7 (/x): this is bad")
	require.Equal(t, "1.0.0", version(t, r, "acme@1"), "the old snapshot stays")
	_, err = r.Lookup(t.Context(), "other@1")
	require.ErrorIs(t, err, connectors.ErrUnknownConnector, "whole or not at all")

	put(t, dir, "acme", "1.0.0", "acme 1.0.0 /a")
	require.Error(t, r.Reload(t.Context()), "the same major with another identity")
	put(t, dir, "acme", "1.0.0", "acme 1.0.0")
	require.NoError(t, r.Reload(t.Context()))
	require.Equal(t, "1.0.0", version(t, r, "other@1"))
}

func TestReloadRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		fill func(t *testing.T, dir string)
		says string
	}{
		"a file in another's folder":        {func(t *testing.T, dir string) { put(t, dir, "acme", "1.0.0", "other 1.0.0") }, "differ from the folders"},
		"a version in another's folder":     {func(t *testing.T, dir string) { put(t, dir, "acme", "1.0.0", "acme 1.0.1") }, "differ from the folders"},
		"a version that is built in":        {func(t *testing.T, dir string) { put(t, dir, "built", "1.0.0", "built  1.0.0") }, "same name and version"},
		"versions that ignore other things": {func(t *testing.T, dir string) { put(t, dir, "built", "1.1.0", "built 1.1.0 /a") }, "identity.ignore differs"},
		"a folder without a file": {func(t *testing.T, dir string) {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "acme", "1.0.0"), 0o755))
		}, "connector.yaml"},
		"a file that is too large":   {func(t *testing.T, dir string) { put(t, dir, "acme", "1.0.0", strings.Repeat(" ", 256<<10)+"x") }, "256 KiB"},
		"a folder that is not there": {func(t *testing.T, dir string) { require.NoError(t, os.Remove(dir)) }, "read connectors folder"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "connectors.d")
			require.NoError(t, os.Mkdir(dir, 0o755))
			r := open(t, connectors.Options{Dir: dir, Builtin: []connectors.Source{{File: "b", Manifest: []byte("built 1.0.0")}}})
			require.NoError(t, r.Reload(t.Context()))
			row.fill(t, dir)
			require.ErrorContains(t, r.Reload(t.Context()), row.says)
			require.Equal(t, "1.0.0", version(t, r, "built@1"))
		})
	}
}

func TestVersionsThatIgnoreTheSameAgree(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "acme", "1.0.0", "acme 1.0.0 /a /b")
	put(t, dir, "acme", "1.1.0", "acme 1.1.0 /b /a /a")
	put(t, dir, "acme", "2.0.0", "acme 2.0.0")
	require.NoError(t, open(t, connectors.Options{Dir: dir}).Reload(t.Context()))
}

func TestCopyOfABuiltinIsTheBuiltin(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "built", "1.0.0", "built 1.0.0")
	r := open(t, connectors.Options{Dir: dir, Builtin: []connectors.Source{{File: "b", Manifest: []byte("built 1.0.0")}}})
	require.NoError(t, r.Reload(t.Context()))
	require.Len(t, r.Specs(), 1)
}

func TestStartGoesOnWithTheGoodFiles(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "good", "1.0.0", "good 1.0.0")
	put(t, dir, "bad", "1.0.0", "bad")
	r := open(t, connectors.Options{Dir: dir})
	require.Error(t, r.Reload(t.Context()))
	require.Equal(t, "1.0.0", version(t, r, "good@1"))

	put(t, dir, "good", "1.0.0", "bad")
	put(t, dir, "bad", "1.0.0", "bad 1.0.0")
	require.Error(t, r.Reload(t.Context()))
	require.Equal(t, "1.0.0", version(t, r, "good@1"), "from then on a bad file changes nothing")
}

func TestNothingIsClaimableBeforeItIsKept(t *testing.T) {
	k := newShelf()
	k.fail(errors.New("store away"))
	dir := t.TempDir()
	put(t, dir, "acme", "1.0.0", "acme 1.0.0")
	r := open(t, connectors.Options{Dir: dir, Keeper: k})
	require.NoError(t, r.Reload(t.Context()))
	require.Error(t, r.Keep(t.Context()))
	c, err := r.Lookup(t.Context(), "acme@1")
	require.NoError(t, err)
	require.False(t, c.Claimable)

	k.fail(nil)
	require.NoError(t, r.Keep(t.Context()))
	c, err = r.Lookup(t.Context(), "acme@1")
	require.NoError(t, err)
	require.True(t, c.Claimable)

	require.NoError(t, r.Reload(t.Context()))
	c, err = r.Lookup(t.Context(), "acme@1")
	require.NoError(t, err)
	require.True(t, c.Claimable, "what is kept stays kept")
	require.NoError(t, r.Keep(t.Context()))
	require.Equal(t, 1, k.saves)
}

func TestBrokenFileFallsBackOnWhatWasKept(t *testing.T) {
	k := newShelf()
	dir := t.TempDir()
	put(t, dir, "acme", "1.0.0", "acme 1.0.0")
	put(t, dir, "acme", "1.1.0", "acme 1.1.0")
	r := open(t, connectors.Options{Dir: dir, Keeper: k})
	require.NoError(t, r.Reload(t.Context()))
	require.NoError(t, r.Keep(t.Context()))

	put(t, dir, "acme", "1.0.0", "broken")
	put(t, dir, "acme", "1.1.0", "broken")
	restarted := open(t, connectors.Options{Dir: dir, Keeper: k})
	require.Error(t, restarted.Reload(t.Context()))
	for range 2 {
		c, err := restarted.Lookup(t.Context(), "acme@1")
		require.NoError(t, err)
		require.Equal(t, "1.1.0", c.Spec().Version)
		require.False(t, c.Claimable, "it replays, but nothing new comes to depend on it")
		old, err := restarted.Exact(t.Context(), sha256.Sum256([]byte("acme 1.0.0")))
		require.NoError(t, err)
		require.Equal(t, "1.0.0", old.Spec().Version)
	}
	_, err := restarted.Lookup(t.Context(), "acme@2")
	require.ErrorIs(t, err, connectors.ErrUnknownConnector)
	_, err = restarted.Exact(t.Context(), connectors.Sum{1})
	require.ErrorIs(t, err, connectors.ErrUnknownConnector)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "acme")))
	require.NoError(t, restarted.Reload(t.Context()))
	c, err := restarted.Lookup(t.Context(), "acme@1")
	require.NoError(t, err)
	require.False(t, c.Claimable, "a connector that was removed makes no new writes")
	require.Empty(t, restarted.Specs())
}

func TestKeptIdentityIsNotContradicted(t *testing.T) {
	k := newShelf()
	dir := t.TempDir()
	put(t, dir, "acme", "1.0.0", "acme 1.0.0 /a")
	r := open(t, connectors.Options{Dir: dir, Keeper: k})
	require.NoError(t, r.Reload(t.Context()))
	require.NoError(t, r.Keep(t.Context()))

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "acme")))
	put(t, dir, "acme", "1.1.0", "acme 1.1.0")
	restarted := open(t, connectors.Options{Dir: dir, Keeper: k})
	require.NoError(t, restarted.Reload(t.Context()), "files alone do not tell")
	require.ErrorContains(t, restarted.Keep(t.Context()), "identity.ignore differs")
	c, err := restarted.Lookup(t.Context(), "acme@1")
	require.NoError(t, err)
	require.Equal(t, "1.0.0", c.Spec().Version, "writes that exist are found as they were made")
	require.False(t, c.Claimable)
	require.Equal(t, "1.0.0", strings.Fields(string(k.latest["acme@1"]))[1])

	require.NoError(t, restarted.Reload(t.Context()))
	require.Equal(t, "1.0.0", version(t, restarted, "acme@1"), "a reload does not forget it")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "acme")))
	put(t, dir, "acme", "1.1.1", "acme 1.1.1 /a")
	require.NoError(t, restarted.Reload(t.Context()))
	require.NoError(t, restarted.Keep(t.Context()))
	require.Equal(t, "1.1.1", version(t, restarted, "acme@1"))
}

func TestKeeperThatFailsOrLies(t *testing.T) {
	k := newShelf()
	r := open(t, connectors.Options{Keeper: k})
	sum := connectors.Sum(sha256.Sum256([]byte("acme 1.0.0")))

	k.bySum[sum] = []byte("acme 1.0.0 /changed")
	_, err := r.Exact(t.Context(), sum)
	require.ErrorContains(t, err, "not the one that was saved")
	k.latest["acme@1"] = []byte("rubbish")
	_, err = r.Lookup(t.Context(), "acme@1")
	require.Error(t, err)

	away := errors.New("store away")
	k.fail(away)
	_, err = r.Exact(t.Context(), sum)
	require.ErrorIs(t, err, away)
	require.NotErrorIs(t, err, connectors.ErrUnknownConnector, "not asked is not absent")
	_, err = r.Lookup(t.Context(), "acme@1")
	require.ErrorIs(t, err, away)
}

func TestReloadThatIsCancelledChangesNothing(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "acme", "1.0.0", "acme 1.0.0")
	r := open(t, connectors.Options{Dir: dir})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Reload(ctx), context.Canceled)
	_, err := r.Lookup(t.Context(), "acme@1")
	require.ErrorIs(t, err, connectors.ErrUnknownConnector)
}

func TestReadersNeverWaitForAReload(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "acme", "1.0.0", "acme 1.0.0")
	r := open(t, connectors.Options{Dir: dir, Keeper: newShelf()})
	require.NoError(t, r.Reload(t.Context()))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				c, err := r.Lookup(t.Context(), "acme@1")
				require.NoError(t, err)
				_ = c.Claimable
				_ = r.Specs()
			}
		})
		wg.Go(func() {
			for range 5 {
				_ = r.Reload(t.Context())
				_ = r.Keep(t.Context())
			}
		})
	}
	wg.Wait()
}
