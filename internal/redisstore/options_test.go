package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTarget(t *testing.T) {
	for _, c := range []struct {
		url     string
		addrs   string
		cluster bool
		master  string
		tls     bool
		db      int
	}{
		{url: "redis://", addrs: "localhost:6379"},
		{url: "redis://host", addrs: "host:6379"},
		{url: "redis://host:7000/3", addrs: "host:7000", db: 3},
		{url: "redis://[::1]", addrs: "[::1]:6379"},
		{url: "rediss://user:pass@[::1]:7000", addrs: "[::1]:7000", tls: true},
		{url: "redis://host?mode=cluster", addrs: "host:6379", cluster: true},
		{url: "redis://a?mode=cluster&addr=b:1&addr=c", addrs: "a:6379 b:1 c:6379", cluster: true},
		{url: "redis://a:26379?mode=sentinel&master=m&addr=b:26379", addrs: "a:26379 b:26379", master: "m"},
	} {
		o, err := Options{URL: c.url}.target()
		require.NoError(t, err, c.url)
		require.Equal(t, strings.Fields(c.addrs), o.Addrs, c.url)
		require.Equal(t, c.cluster, o.IsClusterMode, c.url)
		require.Equal(t, c.master, o.MasterName, c.url)
		require.Equal(t, c.tls, o.TLSConfig != nil, c.url)
		require.Equal(t, c.db, o.DB, c.url)
		require.Equal(t, -1, o.MaxRetries)
		require.Equal(t, 1, o.DialerRetries)
		require.True(t, o.ContextTimeoutEnabled)
	}
	o, err := Options{URL: "redis://user:p%40ss@host", Timeout: 400 * time.Millisecond}.target()
	require.NoError(t, err)
	require.Equal(t, "user", o.Username)
	require.Equal(t, "p@ss", o.Password)
	require.Equal(t, 400*time.Millisecond, o.ReadTimeout)
	require.Equal(t, 200*time.Millisecond, o.DialTimeout)
}

func TestTargetRefuses(t *testing.T) {
	for url, why := range map[string]string{
		"":                                        "redis://",
		"http://host":                             "redis://",
		"redis://user:sentinel@ho st":             "cannot be parsed",
		"redis://:sentinel@host:port":             "cannot be parsed",
		"redis://host/x":                          "database number",
		"redis://host/-1":                         "database number",
		"redis://host?nonsense=1":                 "unknown parameter",
		"redis://host?mode=ring":                  "mode must be",
		"redis://host?mode=sentinel":              "master=NAME",
		"redis://host?master=m":                   "mode=sentinel",
		"redis://host/1?mode=cluster":             "database 0",
		"redis://host?addr=b":                     "several addresses",
		"redis://host?addr=%zz":                   "query",
		"redis://host?mode=cluster&read_only":     "unknown parameter",
		"redis://host?sentinel_password=sentinel": "mode=sentinel",
		"redis://host?server_name=a":              "rediss://",
		"rediss://host?cert=a":                    "belong together",
		"rediss://host?cert=a&key=b":              "client certificate",
	} {
		_, err := Options{URL: url}.target()
		require.ErrorContains(t, err, why, url)
		require.NotContains(t, err.Error(), "sentinel@", url)
	}
}

func TestAck(t *testing.T) {
	for text, want := range map[string]ack{
		"": {}, "auto": {mode: byAuto}, "none": {mode: byNone}, "aof": {mode: byAOF},
		"replicas:1": {mode: byReplicas, replicas: 1}, "replicas:100": {mode: byReplicas, replicas: 100},
	} {
		got, err := parseAck(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"always", "replicas", "replicas:", "replicas:0", "replicas:-1", "replicas:101", "replicas:1x", "AOF"} {
		_, err := parseAck(text)
		require.Error(t, err, text)
		_, err = Open(t.Context(), Options{URL: "redis://localhost", Ack: text})
		require.ErrorContains(t, err, "acknowledgement", text)
	}
}

func TestNeed(t *testing.T) {
	for _, c := range []struct {
		ack            ack
		attached, want int
	}{
		{ack{mode: byAuto}, 0, 0},
		{ack{mode: byAuto}, 1, 1},
		{ack{mode: byAuto}, 3, 1},
		{ack{mode: byNone}, 3, 0},
		{ack{mode: byAOF}, 3, 0},
		{ack{mode: byReplicas, replicas: 2}, 0, 2},
		{ack{mode: byReplicas, replicas: 2}, 3, 2},
		{ack{mode: -1}, 3, maxReplicas},
	} {
		require.Equal(t, c.want, c.ack.need(c.attached), c)
	}
}

func FuzzTarget(f *testing.F) {
	f.Add("redis://user:secret@host:1/2?addr=b&mode=cluster")
	f.Add("rediss://[::1]?mode=sentinel&master=m")
	f.Add("redis://%")
	f.Fuzz(func(t *testing.T, url string) {
		o, err := Options{URL: url}.target()
		if err == nil && len(o.Addrs) == 0 {
			t.Error("no address")
		}
	})
}
