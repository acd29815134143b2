package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/limits"
)

func TestDefaultsAreThoseOfTheContract(t *testing.T) {
	c, err := loadConfig(nil, nil, "")
	require.NoError(t, err)
	require.Equal(t, defaultConfig(), c)
	require.Equal(t, "127.0.0.1:8080", c.Listen)
	require.Equal(t, "127.0.0.1:9090", c.AdminListen)
	require.Equal(t, "embedded:./gateway-data", c.Store)
	require.Equal(t, 24*time.Hour, c.ReplayWindow)
	require.Equal(t, 30*time.Second, c.Lease)
	require.EqualValues(t, 1<<20, c.MaxBody)
	require.EqualValues(t, 1<<20, c.MaxResult)
	require.Equal(t, 2*time.Second, c.StoreTimeout)
	require.Equal(t, 30*time.Second, c.DrainTimeout)
	require.Equal(t, "auto", c.RedisAck)
}

func TestFlagsOverEnvironmentOverFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("lease: 10s\nlisten: 127.0.0.1:1\nmax_body: 2MiB\n"), 0o600))
	c, err := loadConfig(map[string]string{"--listen": "127.0.0.1:3"},
		[]string{"GATEWAY_LISTEN=127.0.0.1:2", "GATEWAY_LEASE=20s", "OTHER=1"}, file)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:3", c.Listen)
	require.Equal(t, 20*time.Second, c.Lease)
	require.EqualValues(t, 2<<20, c.MaxBody)
}

func TestEveryFlagReachesItsSetting(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile, _ := writeCertificate(t, dir)
	values := map[string]string{
		"listen": "127.0.0.1:1", "admin-listen": "127.0.0.1:2", "store": "embedded:x", "store-timeout": "3s",
		"redis-ack": "none", "admin-key": strings.Repeat("k", 32), "secret-key": testSecretKey, "connectors-dir": dir,
		"egress-allow": "10.0.0.0/8, 192.168.1.7/16", "replay-window": "48h", "lease": "40s",
		"max-body": "3MiB", "max-result": "5KiB", "drain-timeout": "7s",
		"tenant-requests-per-second": "11", "tenant-writes-per-second": "0", "tenant-concurrent-calls": "13", "tenant-new-identities": "14",
		"tls-cert": certFile, "tls-key": keyFile, "address-requests-per-second": "15", "trusted-proxies": "10.1.0.0/16,fd00::/8",
		"tenant-requests-at-once": "16", "unchecked-connectors": "stripe, github", "audit-archive": "folder:" + dir, "audit-seal-after": "17s", "audit-max-unsealed": "18",
	}
	var args []string
	for _, s := range settings() {
		value, ok := values[s.name]
		require.True(t, ok, "%s has a value here", s.name)
		args = append(args, "--"+s.name+"="+value)
	}
	probe := &cobra.Command{}
	load := configFlags(probe)
	require.NoError(t, probe.ParseFlags(args))
	t.Setenv("GATEWAY_LISTEN", "127.0.0.1:99")
	c, err := load()
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:1", c.Listen)
	require.Equal(t, "127.0.0.1:2", c.AdminListen)
	require.Equal(t, "x", c.folder())
	require.Equal(t, 3*time.Second, c.StoreTimeout)
	require.Equal(t, "none", c.RedisAck)
	require.Len(t, c.AdminKeys[0], 32)
	require.Equal(t, testSecretKey, c.SecretKey)
	require.Equal(t, dir, c.ConnectorsDir)
	require.Equal(t, "[10.0.0.0/8 192.168.0.0/16]", fmt.Sprint(c.EgressAllow))
	require.Equal(t, 48*time.Hour, c.ReplayWindow)
	require.Equal(t, 40*time.Second, c.Lease)
	require.EqualValues(t, 3<<20, c.MaxBody)
	require.EqualValues(t, 5<<10, c.MaxResult)
	require.Equal(t, 7*time.Second, c.DrainTimeout)
	require.Equal(t, limits.Policy{RequestsPerSecond: 11, ConcurrentCalls: 13, NewWrites: 14}, c.Limits)
	require.EqualValues(t, 15, c.AddressRequests)
	require.EqualValues(t, 16, c.RequestsAtOnce)
	require.Equal(t, []string{"stripe", "github"}, c.UncheckedConnectors)
	require.Equal(t, "folder:"+dir, c.AuditArchive)
	require.Equal(t, 17*time.Second, c.AuditSealAfter)
	require.EqualValues(t, 18, c.AuditMaxUnsealed)
	require.Equal(t, []string{certFile, keyFile}, []string{c.TLSCert, c.TLSKey})
	require.Equal(t, "[10.1.0.0/16 fd00::/8]", fmt.Sprint(c.TrustedProxies))
}

func TestEveryProblemIsListedAndNoValueShown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("lease: 1ns\nspeed: fast\n"), 0o600))
	_, err := loadConfig(map[string]string{"--egress-allow": "10.0.0.1"}, []string{
		"GATEWAY_SECRET_KEY=s3cret", "GATEWAY_ADMIN_KEY=sh0rt", "GATEWAY_TYPO=1", "GATEWAY_MAX_BODY=12 apples",
		"GATEWAY_STORE=mysql://db", "GATEWAY_LISTEN=nowhere", "GATEWAY_CONNECTORS_DIR=/does/not/exist", "GATEWAY_REDIS_ACK=maybe",
	}, file)
	require.Error(t, err)
	for _, word := range []string{
		"file lease", "file speed: is no setting", "flag --egress-allow", "GATEWAY_SECRET_KEY", "GATEWAY_ADMIN_KEY",
		"GATEWAY_TYPO: is no setting", "GATEWAY_MAX_BODY", "GATEWAY_STORE", "GATEWAY_LISTEN", "GATEWAY_CONNECTORS_DIR", "GATEWAY_REDIS_ACK",
	} {
		require.Contains(t, err.Error(), word)
	}
	for _, value := range []string{"s3cret", "sh0rt", "apples", "mysql"} {
		require.NotContains(t, err.Error(), value)
	}
}

func TestRedisAck(t *testing.T) {
	for v, good := range map[string]bool{
		"auto": true, "none": true, "aof": true, "replicas:1": true, "replicas:3": true,
		"": false, "replicas:0": false, "replicas": false, "always": false,
	} {
		c, err := loadConfig(map[string]string{"--redis-ack": v}, nil, "")
		if !good {
			require.ErrorContains(t, err, "--redis-ack", v)
			continue
		}
		require.NoError(t, err, v)
		require.Equal(t, v, c.RedisAck)
	}
}

func TestRedisNeedsSharedKeys(t *testing.T) {
	_, err := loadConfig(nil, []string{"GATEWAY_STORE=redis://localhost"}, "")
	require.ErrorContains(t, err, "GATEWAY_SECRET_KEY")
	require.ErrorContains(t, err, "GATEWAY_ADMIN_KEY")
}

func TestConfigFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"list.yaml": "- a\n", "nested.yaml": "listen: {a: b}\n", "broken.yaml": "a: [\n"} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := loadConfig(nil, nil, file)
		require.Error(t, err, name)
	}
	_, err := loadConfig(nil, nil, filepath.Join(dir, "absent.yaml"))
	require.Error(t, err)
}

// Platform admin keys are replaced by having two for a while.
func TestAdminKeysAreAList(t *testing.T) {
	one, two := strings.Repeat("a", 32), strings.Repeat("b", 32)
	c, err := loadConfig(nil, []string{"GATEWAY_ADMIN_KEY=" + one + ", " + two}, "")
	require.NoError(t, err)
	require.Equal(t, []string{one, two}, c.AdminKeys)
	for _, bad := range []string{one + ",", one + "," + one, one + "," + two[1:], ","} {
		_, err := loadConfig(nil, []string{"GATEWAY_ADMIN_KEY=" + bad}, "")
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), one)
	}
}
