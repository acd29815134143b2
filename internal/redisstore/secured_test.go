package redisstore_test

import (
	"crypto/rand"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// secured has a server speak TLS at a port beside its own, to those alone who
// show a certificate, and know a user with no more rights than it needs.
func secured(t *testing.T, more ...string) (port string, config []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port = strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, l.Close())
	return port, append([]string{
		"tls-port " + port, "tls-auth-clients yes", "tls-ca-cert-file " + filepath.Join(certificates, "cert.pem"),
		"tls-cert-file " + filepath.Join(certificates, "cert.pem"), "tls-key-file " + filepath.Join(certificates, "key.pem"),
		"user gateway on >sentinel-password ~hf:* resetchannels +@all -@admin -@dangerous +info +config|get",
	}, more...)
}

func certified() string {
	return "&cert=" + filepath.Join(certificates, "cert.pem") + "&key=" + filepath.Join(certificates, "key.pem") + "&server_name=127.0.0.1"
}

// works begins a store and makes every kind of step on it, on many scopes.
func worksSecured(t *testing.T, url string) {
	t.Helper()
	for _, pipeline := range []bool{false, true} {
		opts := redisstore.Options{URL: url, Pipeline: pipeline, Ack: "none", Timeout: waitLimit}
		if err := redisstore.Init(t.Context(), opts); err != nil {
			require.ErrorIs(t, err, redisstore.ErrInitialised)
		}
		s := open(t, opts)
		require.NoError(t, s.Ready(t.Context()))
		require.NoError(t, s.Beat(t.Context()))
		for range 6 {
			everyPart(t, s, ledger.ScopeOf(rand.Text()))
		}
	}
}

// TestClusterOverTLS: three masters that speak TLS to clients, which have to show
// a certificate, and to each other.
func TestClusterOverTLS(t *testing.T) {
	t.Parallel()
	ports := []string{}
	nodes := redistest.StartClusterOf(t, 3, func(int) []string {
		port, config := secured(t, "tls-cluster yes")
		ports = append(ports, port)
		return config
	})
	url := "rediss://gateway:sentinel-password@127.0.0.1:" + ports[0] + "?mode=cluster"
	worksSecured(t, url+certified())
	for _, n := range nodes {
		size, err := n.Do(t.Context(), "DBSIZE")
		require.NoError(t, err)
		require.NotEqual(t, "0", size)
	}
	err := open(t, redisstore.Options{URL: url, Timeout: time.Second}).Ready(t.Context())
	require.ErrorIs(t, err, ledger.ErrUnavailable, "without a certificate")
}

// TestSentinelOverTLS: a sentinel and a master that speak TLS, each with its own
// password.
func TestSentinelOverTLS(t *testing.T) {
	t.Parallel()
	port, config := secured(t)
	master := redistest.Start(t, append(config, redistest.Durable()...)...)
	at, config := secured(t)
	tls := []string{config[0], config[1], config[2], config[3], config[4], "tls-replication yes", "requirepass sentinel-other"}
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	redistest.StartSentinelAt(t, n, tls...)
	_ = master
	url := "rediss://gateway:sentinel-password@127.0.0.1:" + at + "?mode=sentinel&master=" + redistest.SentinelName + certified()
	worksSecured(t, url+"&sentinel_password=sentinel-other")
	err = open(t, redisstore.Options{URL: url, Timeout: time.Second}).Ready(t.Context())
	require.ErrorIs(t, err, ledger.ErrUnavailable, "without the sentinel's password")
}
