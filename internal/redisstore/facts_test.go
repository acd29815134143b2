package redisstore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const goodInfo = "# Server\r\nredis_version:7.0.15\r\nloading:0\r\nrole:master\r\nconnected_slaves:0\r\n" +
	"maxmemory_policy:noeviction\r\naof_enabled:1\r\naof_last_write_status:ok\r\n"

// twoReplicas are one in step and one that is not.
const twoReplicas = "slaves:2\r\nslave0:ip=10.0.0.1,port=6379,state=online,offset=9,lag=0\r\n" +
	"slave1:ip=10.0.0.2,port=6379,state=send_bulk,offset=0,lag=0\r\nslave_read_only:1\r\n"

func TestFaults(t *testing.T) {
	always := map[string]string{"appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
	for _, c := range []struct {
		name, from, to string
		ack            ack
		settings       map[string]string
		want           []string // in the one fault; none: fit
	}{
		{name: "fit", ack: ack{mode: byAuto}, settings: always},
		{name: "newer", from: "7.0.15", to: "8.2.1", ack: ack{mode: byAOF}, settings: always},
		{name: "older", from: "7.0.15", to: "6.2.7", ack: ack{mode: byNone}, want: []string{"version 7"}},
		{name: "no version", from: "redis_version", to: "other", ack: ack{mode: byNone}, want: []string{"version 7"}},
		{name: "loading", from: "loading:0", to: "loading:1", ack: ack{mode: byNone}, want: []string{"loading"}},
		{name: "loading not said", from: "loading:0\r\n", ack: ack{mode: byNone}, want: []string{"loading"}},
		{name: "replica", from: "role:master", to: "role:slave", ack: ack{mode: byNone}, want: []string{"replica"}},
		{name: "eviction", from: "noeviction", to: "volatile-ttl", ack: ack{mode: byNone}, want: []string{"noeviction", "volatile-ttl"}},
		{name: "policy not said", from: "maxmemory_policy:noeviction\r\n", ack: ack{mode: byNone}, want: []string{"noeviction", "not known"}},
		{name: "no file", from: "aof_enabled:1", to: "aof_enabled:0", ack: ack{mode: byAOF}, settings: always, want: []string{"sync"}},
		{name: "no file, accepted", from: "aof_enabled:1", to: "aof_enabled:0", ack: ack{mode: byNone}},
		{name: "settings not read", ack: ack{mode: byAuto}, want: []string{"GATEWAY_REDIS_ACK=none"}},
		{name: "file fails", from: "write_status:ok", to: "write_status:err", ack: ack{mode: byAuto}, settings: always, want: []string{"cannot write"}},
		{name: "a replica in place of a file", from: "slaves:0\r\n", to: twoReplicas, ack: ack{mode: byAuto}},
		{name: "a replica is not a file", from: "slaves:0\r\n", to: twoReplicas, ack: ack{mode: byAOF}, want: []string{"sync"}},
		{name: "replicas, as many as asked for", from: "slaves:0\r\n", to: twoReplicas, ack: ack{mode: byReplicas, replicas: 1}},
		{name: "replicas, too few in step", from: "slaves:0\r\n", to: twoReplicas, ack: ack{mode: byReplicas, replicas: 2}, want: []string{"2 replicas", "1 are attached"}},
		{name: "replicas, none, and a file", ack: ack{mode: byReplicas, replicas: 1}, settings: always, want: []string{"0 are attached"}},
		{name: "replicas, not in step yet", from: "slaves:0\r\n", to: "slaves:1\r\nslave0:ip=::1,port=1,state=wait_bgsave,offset=0,lag=0\r\n", ack: ack{mode: byAuto}, want: []string{"GATEWAY_REDIS_ACK=none"}},
		{name: "Valkey", from: "redis_version:7.0.15", to: "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0", ack: ack{mode: byAuto}, settings: always},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := strings.ReplaceAll(goodInfo, c.from, c.to)
			if c.from == "" {
				info = goodInfo
			}
			got := parseInfo(info).faults(c.ack, c.settings)
			if c.want == nil {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			for _, part := range c.want {
				require.Contains(t, got[0], part)
			}
		})
	}
}

func FuzzParseInfo(f *testing.F) {
	f.Add(goodInfo)
	f.Add("a:b:c\n\r\n#:\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, value := range parseInfo(text) {
			if strings.ContainsAny(name+value, "\n") || strings.Contains(name, ":") {
				t.Errorf("%q: %q", name, value)
			}
		}
	})
}
