package redisstore_test

import (
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// A step is one round trip as long as no replica has to be waited for, and its
// script gives the server few commands: what they cost is what a step costs.
func TestAStepIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	for _, ack := range []string{"none", "aof"} {
		modes(t, func(t *testing.T, opts redisstore.Options) {
			server := redistest.Start(t, redistest.Durable()...)
			opts.URL, opts.Ack = server.URL(), ack
			s := open(t, opts)
			scope := ledger.ScopeOf("tenant")
			apply(t, s, scope, claim(s, "the server knows the script"))
			_, err := server.Do(t.Context(), "CONFIG", "RESETSTAT")
			require.NoError(t, err)

			for _, id := range []string{"one", "two", "three"} {
				require.True(t, apply(t, s, scope, claim(s, id)).Applied)
			}
			calls := commandStats(t, server)
			delete(calls, "config|resetstat")
			require.Equal(t, map[string]string{
				"evalsha": "3", // and all others from within the script
				"time":    "3", "mget": "3", "exists": "3", "zcard": "6", "mset": "3", "set": "3", "zadd": "6", "xadd": "3",
			}, calls)
		})
	}
}

// commandStats is how often a server ran each command, as INFO tells.
func commandStats(t *testing.T, server *redistest.Server) map[string]string {
	t.Helper()
	text, err := server.Do(t.Context(), "INFO", "commandstats")
	require.NoError(t, err)
	calls := map[string]string{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if count, _, more := strings.Cut(rest, ","); ok && more {
			calls[name] = count
		}
	}
	return calls
}

// A step may have more parts than one command of the server's takes words.
func TestStepOfThousands(t *testing.T) {
	s := open(t, redisstore.Options{URL: shared.URL()})
	scope := ledger.ScopeOf(rand.Text())
	const count = 2500
	begin := ledger.Step{Nonce: ledger.NewNonce()}
	next := ledger.Step{Nonce: ledger.NewNonce()}
	for i := range count {
		k := key(strconv.Itoa(i))
		begin.Put = append(begin.Put, ledger.Put{Key: k, Data: []byte(k.ID)})
		next.Expect = append(next.Expect, ledger.Expect{Key: k, Version: begin.Nonce.Version()})
		next.Fetch = append(next.Fetch, ledger.Fetch{Key: k})
	}
	begin.At = s.Now()
	require.True(t, apply(t, s, scope, begin).Applied)

	refused := next
	refused.Expect = append(slices.Clone(next.Expect), ledger.Expect{Key: key("none"), Version: ledger.Version{1}})
	refused.At = s.Now()
	res := apply(t, s, scope, refused)
	require.False(t, res.Applied)
	require.Len(t, res.Values, count)
	snap, err := s.Read(t.Context(), scope, append(next.Fetch, ledger.Fetch{Key: key("none")})...)
	require.NoError(t, err)
	require.Equal(t, res.Values, snap.Values)

	for _, p := range begin.Put {
		next.Delete = append(next.Delete, p.Key)
	}
	next.At = s.Now()
	require.True(t, apply(t, s, scope, next).Applied)
	snap, err = s.Read(t.Context(), scope, next.Fetch...)
	require.NoError(t, err)
	require.Empty(t, snap.Values)
}
