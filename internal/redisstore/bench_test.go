package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// BenchmarkClaim measures steps of a claim's shape, one after the other by each
// of 64 callers, with and without shared round trips, on a server that syncs
// each write and on one that does not.
func BenchmarkClaim(b *testing.B) {
	const callers = 64
	for _, server := range []struct {
		name   string
		config []string
	}{{"memory", nil}, {"synced", redistest.Durable()}} {
		for _, mode := range []struct {
			name     string
			pipeline bool
		}{{"pool", false}, {"pipeline", true}} {
			b.Run(server.name+"/"+mode.name, func(b *testing.B) {
				s := open(b, redisstore.Options{URL: redistest.Start(b, server.config...).URL(), Pipeline: mode.pipeline})
				scope := ledger.ScopeOf("tenant")
				var next atomic.Int64
				b.ReportAllocs()
				b.SetParallelism(callers) // times GOMAXPROCS: see below
				var running atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					if running.Add(1) > callers {
						return
					}
					for pb.Next() {
						res, err := s.Apply(b.Context(), scope, claim(s, fmt.Sprintf("%016d", next.Add(1))))
						if err != nil || !res.Applied {
							b.Errorf("claim: %v, applied %v", err, res.Applied)
							return
						}
					}
				})
			})
		}
	}
}
