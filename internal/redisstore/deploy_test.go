package redisstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// Behind Sentinel the master is killed: the store finds the new one by itself,
// and all that was acknowledged is there. The old one comes back as a replica.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, opts redisstore.Options) {
		t.Parallel()
		master := redistest.Start(t)
		first, second := redistest.StartReplica(t, master), redistest.StartReplica(t, master)
		sentinel := redistest.StartSentinel(t, master)
		require.Eventually(t, func() bool {
			info, err := sentinel.Do(t.Context(), "INFO", "sentinel")
			return err == nil && strings.Contains(info, "slaves=2")
		}, 30*time.Second, tick)

		opts.URL = sentinel.URL() + "?mode=sentinel&master=" + redistest.SentinelName
		opts.Ack, opts.Timeout = "replicas:2", time.Second
		require.NoError(t, redisstore.Init(t.Context(), opts))
		opts.Ack = "replicas:1"
		s := open(t, opts)
		require.NoError(t, s.Ready(t.Context()))
		all := opts
		all.Ack = "replicas:2" // whichever is promoted has it
		sure := open(t, all)
		scope := ledger.ScopeOf(rand.Text())
		var steps []ledger.Step
		for i := range 10 {
			step := claim(sure, fmt.Sprintf("%016d", i))
			require.True(t, apply(t, sure, scope, step).Applied)
			steps = append(steps, step)
		}
		require.NoError(t, master.Kill())
		_, err := s.Apply(t.Context(), scope, claim(s, "while it is dead"))
		require.ErrorIs(t, err, ledger.ErrUnavailable)

		worksWithin(t, s, scope, 30*time.Second)
		for _, step := range steps {
			require.True(t, holds(t, s, scope, step.Put[0].Key))
		}
		require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, 30*time.Second, tick)
		roles := map[string]int{}
		for _, n := range []*redistest.Server{first, second} {
			info, err := n.Do(t.Context(), "INFO", "replication")
			require.NoError(t, err)
			roles[strings.TrimSpace(strings.SplitN(info, "\n", 3)[1])]++
		}
		require.Equal(t, map[string]int{"role:master": 1, "role:slave": 1}, roles)
		require.NoError(t, master.Start())
		worksWithin(t, s, scope, 10*time.Second)
	})
}

// A master of a Cluster is killed and its replica takes over: what was
// acknowledged is there, the store finds it, and says so while nobody has.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	const quick = "cluster-node-timeout 1000"
	nodes := redistest.StartCluster(t, 3, quick)
	opts := redisstore.Options{URL: nodes[0].URL() + "?mode=cluster", Ack: "replicas:1", Timeout: time.Second, Pipeline: true}
	for _, n := range nodes {
		redistest.StartClusterReplica(t, n, quick)
	}
	require.NoError(t, redisstore.Init(t.Context(), opts))
	s := open(t, opts)
	require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil && s.Beat(t.Context()) == nil }, 30*time.Second, tick)
	var scopes []ledger.Scope
	for i := range 12 { // the same ones each time: they lie on all three
		scope := ledger.ScopeOf(strconv.Itoa(i))
		require.True(t, apply(t, s, scope, claim(s, "0123456789abcdef")).Applied)
		scopes = append(scopes, scope)
	}
	opts.Ack = "none" // the replica that takes over has none of its own
	after := open(t, opts)
	require.NoError(t, nodes[1].Kill())
	unsure := 0
	for _, scope := range scopes {
		worksWithin(t, after, scope, 30*time.Second)
		require.True(t, holds(t, after, scope, ledger.Key{Kind: ledger.Binding, ID: "0123456789abcdef"}))
		if _, err := s.Apply(t.Context(), scope, claim(s, "fedcba9876543210")); err != nil {
			require.ErrorIs(t, err, ledger.ErrUnavailable)
			unsure++
		}
	}
	require.Positive(t, unsure)
	require.Less(t, unsure, len(scopes))
}

// While a slot moves from one master to another, calls about it are asked
// elsewhere, told to try again and sent on, and no step is done twice or half.
func TestSlotOnTheMove(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	opts := redisstore.Options{URL: nodes[0].URL() + "?mode=cluster", Ack: "none", Timeout: time.Second}
	s := open(t, opts)
	scope := ledger.ScopeOf(rand.Text())
	before := claim(s, "0123456789abcdef")
	require.True(t, apply(t, s, scope, before).Applied)

	do := func(n *redistest.Server, args ...string) string {
		t.Helper()
		reply, err := n.Do(t.Context(), args...)
		require.NoError(t, err, args)
		return reply
	}
	slot := do(nodes[0], "CLUSTER", "KEYSLOT", tag(scope))
	var from, to *redistest.Server
	for _, n := range nodes {
		if do(n, "CLUSTER", "COUNTKEYSINSLOT", slot) != "0" {
			from = n
		} else {
			to = n
		}
	}
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", do(from, "CLUSTER", "MYID"))
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", do(to, "CLUSTER", "MYID"))
	// Half of the scope's keys are here and half there: what needs both is in doubt.
	do(from, "MIGRATE", "127.0.0.1", portOf(t, to.URL()), valueKey(scope, before.Put[0].Key), "0", "5000")
	during := claim(s, "fedcba9876543210")
	during.Expect = append(during.Expect, ledger.Expect{Key: before.Put[0].Key, Version: before.Nonce.Version()})
	_, err := s.Apply(t.Context(), scope, during)
	require.ErrorIs(t, err, ledger.ErrUnavailable)

	for {
		keys := do(from, "CLUSTER", "COUNTKEYSINSLOT", slot)
		if keys == "0" {
			break
		}
		for _, key := range []string{
			valueKey(scope, before.Put[1].Key), tag(scope) + "#rows", tag(scope) + "#zi", tag(scope) + "#zl",
			tag(scope) + "#n" + string(before.Nonce[:]),
		} {
			_, err := from.Do(t.Context(), "MIGRATE", "127.0.0.1", portOf(t, to.URL()), key, "0", "5000")
			require.NoError(t, err)
		}
	}
	// All of them are there, and the slot not yet: one key is asked for there, and a
	// step, which also names keys that do not exist, has to wait.
	require.NoError(t, s.Trim(t.Context(), scope, ledger.ByHold, s.Now()))
	_, err = s.Apply(t.Context(), scope, during)
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	for _, n := range nodes {
		do(n, "CLUSTER", "SETSLOT", slot, "NODE", do(to, "CLUSTER", "MYID"))
	}
	during.At = s.Now()
	require.True(t, apply(t, s, scope, during).Applied, "moved for good")
	require.True(t, apply(t, s, scope, during).Applied, "a repeat")
	require.True(t, apply(t, s, scope, before).Applied, "a repeat of what was done before the move")
	require.Len(t, rowsOf(t, s, scope), 2)
	require.NotContains(t, do(from, "INFO", "errorstats"), "errorstat_WRONGTYPE")
}

// A user with no more than it needs, over TLS, with every other way shut.
func TestTLSAndALeastUser(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	port := portOf(t, server.URL())
	require.NoError(t, server.Kill())
	dir := t.TempDir()
	secured := redistest.Start(t, append(redistest.Durable(),
		"port 0", "tls-port "+port, "tls-auth-clients no",
		"tls-cert-file "+filepath.Join(certificates, "cert.pem"), "tls-key-file "+filepath.Join(certificates, "key.pem"),
		"dir "+dir, "user default off",
		"user gateway on >sentinel-password ~hf:* resetchannels +@all -@admin -@dangerous +info +config|get",
	)...)
	_ = secured
	for _, pipeline := range []bool{false, true} {
		opts := redisstore.Options{URL: "rediss://gateway:sentinel-password@127.0.0.1:" + port, Pipeline: pipeline}
		if err := redisstore.Init(t.Context(), opts); err != nil {
			require.ErrorIs(t, err, redisstore.ErrInitialised)
		}
		s := open(t, opts)
		require.NoError(t, s.Ready(t.Context()))
		require.NoError(t, s.Beat(t.Context()))
		everyPart(t, s, ledger.ScopeOf(rand.Text()))
	}
	for name, url := range map[string]string{
		"in clear":               "redis://gateway:sentinel-password@127.0.0.1:" + port,
		"the wrong password":     "rediss://gateway:sentinel-wrong@127.0.0.1:" + port,
		"no user":                "rediss://127.0.0.1:" + port,
		"a name not vouched for": "rediss://gateway:sentinel-password@localhost:" + port,
	} {
		err := open(t, redisstore.Options{URL: url, Timeout: time.Second}).Ready(t.Context())
		require.ErrorIs(t, err, ledger.ErrUnavailable, name)
		require.NotContains(t, err.Error(), "sentinel", name)
	}
}

// certificates is a folder with the certificate of 127.0.0.1, which this process
// trusts: the roots are read once, so TestMain makes it.
var certificates string

func makeCertificates(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	certificates = dir
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return os.Setenv("SSL_CERT_FILE", filepath.Join(dir, "cert.pem"))
}
