package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writeCertificate writes a new certificate for 127.0.0.1 and returns what
// verifies it.
func writeCertificate(t testing.TB, dir string) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "gateway"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}, &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "gateway"}}, key.Public(), key)
	require.NoError(t, err)
	encoded, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	require.NoError(t, os.WriteFile(certFile, cert, 0o644))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), 0o600))
	roots = x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(cert))
	return certFile, keyFile, roots
}

// TestServingOverTLS: TLS 1.2 and up, nothing in clear, and a renewed certificate
// without a restart; a broken one changes nothing.
func TestServingOverTLS(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(dir, "data")
	var roots *x509.CertPool
	cfg.TLSCert, cfg.TLSKey, roots = writeCertificate(t, dir)
	app, log := boot(t, cfg)
	type seen struct {
		status int
		proto  string
		header http.Header
	}
	get := func(roots *x509.CertPool, most uint16) (seen, error) {
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS10, MaxVersion: most}, DisableKeepAlives: true, ForceAttemptHTTP2: true,
		}}
		resp, err := client.Get(app.URL() + "/openapi.yaml")
		if err != nil {
			return seen{}, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return seen{resp.StatusCode, resp.Proto, resp.Header}, nil
	}
	require.Contains(t, app.URL(), "https://")
	resp, err := get(roots, 0)
	require.NoError(t, err)
	require.Equal(t, 200, resp.status)
	require.Equal(t, "HTTP/1.1", resp.proto)
	require.Equal(t, "max-age=31536000", resp.header.Get("Strict-Transport-Security"))
	_, err = get(roots, tls.VersionTLS11)
	require.Error(t, err)
	clear, err := net.Dial("tcp", app.public.addr())
	require.NoError(t, err)
	_, _ = fmt.Fprintf(clear, "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n")
	answer, _ := io.ReadAll(clear)
	require.NotContains(t, string(answer), "200")
	_ = clear.Close()

	_, _, renewed := writeCertificate(t, dir)
	eventually(t, 10*time.Second, "the renewed certificate is served", func() bool {
		_, err := get(renewed, 0)
		return err == nil
	})
	require.NoError(t, os.WriteFile(cfg.TLSKey, []byte("no key"), 0o600))
	eventually(t, 10*time.Second, "a broken one is noticed", func() bool {
		_, err := get(renewed, 0)
		require.NoError(t, err)
		return strings.Contains(log.String(), "TLS certificate not loaded anew")
	})

	cfg.Store = embeddedPrefix + filepath.Join(dir, "other")
	_, err = open(t.Context(), cfg, app.log)
	require.ErrorContains(t, err, "TLS certificate", "a gateway does not start with it")
	_, err = loadConfig(nil, []string{"GATEWAY_TLS_CERT=" + cfg.TLSCert}, "")
	require.ErrorContains(t, err, "belong together")
}
