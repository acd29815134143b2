package main

import (
	"bufio"
	"cmp"
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// trouble is what a real server can be made to say, and how it is mended.
type trouble struct {
	word    string
	probe   string // a command that tells; "": a SET
	bad     func(t *testing.T, s *redistest.Server)
	mend    func(t *testing.T, s *redistest.Server)
	settles bool // a settle goes through all the same
}

func tell(t *testing.T, s *redistest.Server, command string) {
	t.Helper()
	_, err := s.Do(context.WithoutCancel(t.Context()), strings.Fields(command)...)
	require.NoError(t, err, command)
}

// telling are commands, one after another.
func telling(commands ...string) func(*testing.T, *redistest.Server) {
	return func(t *testing.T, s *redistest.Server) {
		t.Helper()
		for _, c := range commands {
			tell(t, s, c)
		}
	}
}

// changePassword also ends the connections that had the old one.
func changePassword(t *testing.T, s *redistest.Server) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte("ACL SETUSER default resetpass >another\r\nCLIENT KILL TYPE normal\r\n"))
	require.NoError(t, err)
	said := bufio.NewReader(conn)
	for range 2 {
		line, err := said.ReadString('\n')
		require.NoError(t, err)
		require.NotEqual(t, byte('-'), line[0], line)
	}
}

func restarted(t *testing.T, s *redistest.Server) {
	t.Helper()
	require.NoError(t, s.Kill())
	require.NoError(t, s.Start())
}

func redisTroubles() map[string]trouble {
	return map[string]trouble{
		"out of memory": {word: "OOM", settles: true,
			bad: telling("CONFIG SET maxmemory 1"), mend: telling("CONFIG SET maxmemory 0")},
		"too few replicas": {word: "NOREPLICAS",
			bad: telling("CONFIG SET min-replicas-to-write 1"), mend: telling("CONFIG SET min-replicas-to-write 0")},
		"demoted": {word: "READONLY",
			bad: telling("REPLICAOF 127.0.0.1 1"), mend: telling("REPLICAOF NO ONE")},
		"replica without its master": {word: "MASTERDOWN", probe: "GET hf:probe",
			bad:  telling("CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"),
			mend: telling("REPLICAOF NO ONE")},
		"rights taken away": {word: "NOPERM",
			bad: telling("ACL SETUSER default -@scripting -set"), mend: telling("ACL SETUSER default +@all")},
		"password changed": {word: "NOAUTH",
			bad: changePassword, mend: restarted},
		"a script that runs on": {word: "BUSY", bad: func(t *testing.T, s *redistest.Server) {
			tell(t, s, "CONFIG SET busy-reply-threshold 50")
			go func() { _, _ = s.Do(context.Background(), "EVAL", "while true do end", "0") }()
		}, mend: telling("SCRIPT KILL")},
		"loading": {word: "LOADING", bad: func(t *testing.T, s *redistest.Server) {
			_, err := s.Do(context.WithoutCancel(t.Context()), "EVAL", "for i=1,150 do redis.call('SET', 'fill'..i, string.rep(i..'x', 500)) end", "0")
			require.NoError(t, err)
			tell(t, s, "BGREWRITEAOF")
			eventually(t, 10*time.Second, "its file is rewritten", func() bool {
				info, err := s.Do(context.WithoutCancel(t.Context()), "INFO", "persistence")
				return err == nil && strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
			})
			s.Configure("key-load-delay 10000", "loading-process-events-interval-bytes 1024")
			require.NoError(t, s.Kill())
			go func() { _ = s.Start() }()
		}, mend: func(*testing.T, *redistest.Server) {}},
	}
}

// TestRedisRefuses: what real servers answer when they cannot take a write, at the
// claim and at the settle. Nothing is sent that was not claimed, nothing is sent
// again, and all of it works again by itself.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	for name, trouble := range redisTroubles() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := ownRedis(t)
			cfg := testConfig(t)
			// Any password is good for a user that needs none.
			cfg.Store = strings.Replace(server.URL(), "redis://", "redis://default:any@", 1)
			playTrouble(t, cfg, trouble, server)
		})
	}
}

// TestClusterIsDown: a slot that nobody serves takes all of a Cluster down.
func TestClusterIsDown(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3, append(redistest.Durable(), "cluster-node-timeout 1000")...)
	cfg := testConfig(t)
	cfg.Store = nodes[0].URL() + "?mode=cluster"
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: cfg.Store}))
	each := func(command string) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, _ *redistest.Server) {
			for i, n := range nodes {
				tell(t, n, command+" "+strconv.Itoa(i*16384/len(nodes)))
			}
		}
	}
	playTrouble(t, cfg, trouble{word: "CLUSTERDOWN", bad: each("CLUSTER DELSLOTS"), mend: each("CLUSTER ADDSLOTS")}, nodes[0])
}

func playTrouble(t *testing.T, cfg Config, trouble trouble, server *redistest.Server) {
	cfg.StoreTimeout = 500 * time.Millisecond
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	var atSettle atomic.Bool
	begin := func() {
		trouble.bad(t, server)
		eventually(t, 10*time.Second, "the server says "+trouble.word, func() bool {
			_, err := server.Do(t.Context(), strings.Fields(cmp.Or(trouble.probe, "SET hf:probe 1"))...)
			return err != nil && strings.HasPrefix(err.Error(), trouble.word)
		})
	}
	vendor := vendortest.New(t, func(c *vendortest.Call) {
		if atSettle.CompareAndSwap(true, false) {
			begin()
		}
		vendortest.OK(c)
	})
	a.connect("c", "probe@1", vendor.URL())
	first := a.do("c", "create", `{"n":0}`).is(200, "succeeded").fresh()

	begin()
	a.do("c", "create", `{"n":1}`).is(503, "store_unavailable").retryAfter()
	if again := a.do("c", "create", `{"n":0}`); again.status == 200 {
		requireSameResult(t, first, again.replayed())
	} else {
		again.is(503, "store_unavailable")
	}
	require.Equal(t, 1, vendor.Arrivals(), "nothing is sent")
	trouble.mend(t, server)
	works := func(body string, meanwhile ...int) (r reply) {
		eventually(t, 20*time.Second, "it works again", func() bool {
			r = a.do("c", "create", body)
			require.Contains(t, append(meanwhile, 200, 503), r.status, "%s", r.raw)
			return r.status == 200
		})
		return r
	}
	works(`{"n":1}`)
	requireSameResult(t, first, a.do("c", "create", `{"n":0}`).is(200, "succeeded").replayed())
	require.Equal(t, 2, vendor.Arrivals())

	atSettle.Store(true)
	told := a.do("c", "create", `{"n":2}`)
	switch {
	case trouble.settles:
		told.is(200, "succeeded")
	default:
		told.is(423, "answer_not_saved")
		require.Equal(t, `{"arrival":3}`, rawMember(t, told.raw, "unsaved_result"))
	}
	trouble.mend(t, server)
	saved := works(`{"n":2}`, 409).replayed()
	require.Equal(t, `{"arrival":3}`, rawMember(t, saved.raw, "result"))
	require.Equal(t, 3, vendor.Arrivals(), "it is not sent again")
}
