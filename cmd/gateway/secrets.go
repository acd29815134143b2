package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"holdfast.dev/gateway/internal/seal"
)

// The embedded store keeps the secrets that were made for it beside it, each in
// a file of mode 0600: whoever can read the folder's data can read them, which
// is why several machines share a key that is configured instead.
const (
	secretKeyFile = "secret.key"
	adminKeyFile  = "admin.key"
)

// secrets are the keys the gateway runs on.
type secrets struct {
	ring      *seal.Ring
	adminKeys []string
	newAdmin  string // made just now, to be shown once
}

func loadSecrets(cfg Config) (secrets, error) {
	s := secrets{adminKeys: cfg.AdminKeys}
	secret := cfg.SecretKey
	if !cfg.isRedis() {
		if err := os.MkdirAll(cfg.folder(), 0o700); err != nil {
			return s, fmt.Errorf("make data folder: %w", err)
		}
		var err error
		if secret == "" {
			if secret, _, err = keptSecret(cfg.folder(), secretKeyFile, seal.Generate); err != nil {
				return s, err
			}
		}
		if len(s.adminKeys) == 0 {
			key, made, err := keptSecret(cfg.folder(), adminKeyFile, newAdminKey)
			if err != nil {
				return s, err
			}
			s.adminKeys = []string{key}
			if made {
				s.newAdmin = key
			}
		}
	}
	ring, err := seal.Parse(secret)
	if err != nil {
		return s, errors.New("the secret key is not 32 bytes in base64")
	}
	s.ring = ring
	return s, nil
}

// newAdminKey has 256 bits in letters that survive any terminal.
func newAdminKey() string { return "hfadmin_" + rand.Text() + rand.Text() }

// keptSecret reads a secret from a file, or makes it, durably, once.
func keptSecret(dir, name string, generate func() string) (value string, made bool, err error) {
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(data)), false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", false, fmt.Errorf("read %s: %w", name, err)
	}
	value = generate()
	if err := writeOnce(dir, name, value); err != nil {
		return "", false, fmt.Errorf("write %s: %w", name, err)
	}
	return value, true, nil
}

// writeOnce writes a file that does not exist yet so that, after a crash, it is
// there whole or not at all.
func writeOnce(dir, name, value string) (err error) {
	tmp, err := os.CreateTemp(dir, "."+name+"-") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.WriteString(value + "\n")
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), filepath.Join(dir, name)); err != nil {
		return err // exists: another process made one at the same moment
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
