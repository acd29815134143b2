package redisstore_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// shared is one server for the tests that leave a server as they found it; they
// work in scopes made at random. It does not sync to disk, so that a busy disk
// does not make steps late: what durability means is tested on servers of their
// own, as is all that changes a server's settings.
var shared *redistest.Server

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "redisstore")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		redisstore.RouteLibraryLog(slog.New(slog.DiscardHandler))
		if err := makeCertificates(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if shared, err = redistest.Launch(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := shared.Kill(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// After a server's absence the library probes for it once a second and
		// notices the closed pool only then.
		if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// modes are the two ways to the server, which must not differ in anything but
// speed.
func modes(t *testing.T, run func(t *testing.T, opts redisstore.Options)) {
	t.Helper()
	for name, pipeline := range map[string]bool{"pool": false, "pipeline": true} {
		t.Run(name, func(t *testing.T) {
			run(t, redisstore.Options{URL: shared.URL(), Pipeline: pipeline, Ack: "none"})
		})
	}
}

func open(t testing.TB, opts redisstore.Options) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// shiftable returns options with a clock that the test can advance.
func shiftable(opts redisstore.Options) (redisstore.Options, func(time.Duration)) {
	shift := &atomic.Int64{}
	opts.TestClockShift = func() time.Duration { return time.Duration(shift.Load()) }
	return opts, func(d time.Duration) { shift.Add(int64(d)) }
}

// The words the tests are written in.

func key(id string) ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: id} }

func put(id, data string) ledger.Put { return ledger.Put{Key: key(id), Data: []byte(data)} }

// claim is a step of the shape that acquires an action.
func claim(s ledger.Store, id string) ledger.Step {
	binding, action := ledger.Key{Kind: ledger.Binding, ID: id}, ledger.Key{Kind: ledger.Action, ID: id}
	now := s.Now()
	return ledger.Step{
		Nonce:  ledger.NewNonce(),
		At:     now,
		Expect: []ledger.Expect{{Key: binding}, {Key: action}},
		Put:    []ledger.Put{{Key: binding, Data: []byte(id)}, {Key: action, Data: []byte("record")}},
		Index:  []ledger.Entry{{Index: ledger.ByLease, Score: now, Member: id}, {Index: ledger.ByCreated, Score: now, Member: id}},
		Rows:   [][]byte{[]byte("row of " + id)},
		Fetch:  []ledger.Fetch{{Key: binding}},
	}
}

func apply(t testing.TB, s ledger.Store, scope ledger.Scope, step ledger.Step) ledger.Result {
	t.Helper()
	res, err := s.Apply(t.Context(), scope, step)
	require.NoError(t, err)
	return res
}

func rowsOf(t testing.TB, s ledger.Store, scope ledger.Scope) []string {
	t.Helper()
	rows, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 1000})
	require.NoError(t, err)
	out := []string{}
	for _, r := range rows {
		out = append(out, string(r.Data))
	}
	return out
}

func holds(t testing.TB, s ledger.Store, scope ledger.Scope, k ledger.Key) bool {
	t.Helper()
	snap, err := s.Read(t.Context(), scope, ledger.Fetch{Key: k})
	require.NoError(t, err)
	_, ok := snap.Get(k)
	return ok
}

const (
	waitLimit = 10 * time.Second
	tick      = 20 * time.Millisecond
)

func portOf(t testing.TB, rawURL string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	return u.Port()
}
