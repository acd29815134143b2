package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"
)

// certificate is the one the API is served with. Its files are looked at again
// every now and then, so that a renewal needs no restart; one that cannot be
// loaded changes nothing.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	cert   *tls.Certificate
	stamp  string    // of the files it was loaded from
	looked time.Time // when the files were looked at
}

// lookEvery is how often the files of a certificate are looked at, at most, and
// only while clients connect.
const lookEvery = time.Second

func loadCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	stamp, err := c.look()
	if err != nil {
		return nil, err
	}
	if err := c.load(stamp); err != nil {
		return nil, err
	}
	return c, nil
}

// look says how the files stand: other sizes or times are other files.
func (c *certificate) look() (stamp string, err error) {
	for _, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return "", errors.New("the TLS certificate or its key is not a file that can be read")
		}
		stamp += fmt.Sprint(info.Size(), info.ModTime().UnixNano(), " ")
	}
	return stamp, nil
}

func (c *certificate) load(stamp string) error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return errors.New("the TLS certificate and key cannot be read, or do not belong together") // the cause would name the files
	}
	c.cert, c.stamp = &pair, stamp
	return nil
}

// get is tls.Config's GetCertificate.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.looked) < lookEvery {
		return c.cert, nil
	}
	c.looked = now
	stamp, err := c.look()
	if err == nil && stamp != c.stamp {
		if err = c.load(stamp); err == nil {
			c.log.Info("TLS certificate loaded anew")
		}
	}
	if err != nil {
		c.log.Warn("TLS certificate not loaded anew; the one before is served", "error", err)
	}
	return c.cert, nil
}

// config allows what browsers and agents of the last ten years speak. HTTP/1.1
// only: the strict reader of requests stands above TLS.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: c.get}
}

// secureOnly tells browsers to come back over TLS only (RFC 6797 section 6.1).
func secureOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		h.ServeHTTP(w, r)
	})
}
