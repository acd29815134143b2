package redisstore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const goodInfo = "# Server\r\nredis_version:7.0.15\r\nloading:0\r\nrole:master\r\nconnected_slaves:0\r\n" +
	"maxmemory_policy:noeviction\r\naof_enabled:1\r\naof_last_write_status:ok\r\n"

func TestFaults(t *testing.T) {
	always := map[string]string{"appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
	for _, c := range []struct {
		name, from, to string
		ack            ack
		settings       map[string]string
		want           []string // in the one fault; none: fit
	}{
		{name: "fit", ack: ackAuto, settings: always},
		{name: "newer", from: "7.0.15", to: "8.2.1", ack: ackAOF, settings: always},
		{name: "older", from: "7.0.15", to: "6.2.7", ack: ackNone, want: []string{"version 7"}},
		{name: "no version", from: "redis_version", to: "other", ack: ackNone, want: []string{"version 7"}},
		{name: "loading", from: "loading:0", to: "loading:1", ack: ackNone, want: []string{"loading"}},
		{name: "loading not said", from: "loading:0\r\n", ack: ackNone, want: []string{"loading"}},
		{name: "replica", from: "role:master", to: "role:slave", ack: ackNone, want: []string{"replica"}},
		{name: "eviction", from: "noeviction", to: "volatile-ttl", ack: ackNone, want: []string{"noeviction", "volatile-ttl"}},
		{name: "policy not said", from: "maxmemory_policy:noeviction\r\n", ack: ackNone, want: []string{"noeviction", "not known"}},
		{name: "no file", from: "aof_enabled:1", to: "aof_enabled:0", ack: ackAOF, settings: always, want: []string{"sync"}},
		{name: "no file, accepted", from: "aof_enabled:1", to: "aof_enabled:0", ack: ackNone},
		{name: "settings not read", ack: ackAuto, want: []string{"GATEWAY_REDIS_ACK=none"}},
		{name: "file fails", from: "write_status:ok", to: "write_status:err", ack: ackAuto, settings: always, want: []string{"cannot write"}},
		{name: "synced, with replicas", from: "slaves:0", to: "slaves:1", ack: ackAuto, settings: always, want: []string{"replicas are attached", "GATEWAY_REDIS_ACK=aof", "failover"}},
		{name: "synced, with replicas, accepted", from: "slaves:0", to: "slaves:1", ack: ackAOF, settings: always},
		{name: "replicas", from: "slaves:0", to: "slaves:2", ack: ackAuto, want: []string{"replicas is not built", "failover", "GATEWAY_REDIS_ACK=none"}},
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
