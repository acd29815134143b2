package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/telemetry"
)

// checkConfig does what serve does up to the point where it would serve, says
// all that is wrong at once, and leaves nothing behind: no store, no key.
func checkConfig(ctx context.Context, cfg Config, log *slog.Logger, out io.Writer) error {
	var problems []error
	for _, c := range []struct {
		what string
		ask  func() error
	}{
		{"store", func() error { return checkStore(ctx, cfg, log) }},
		{"audit archive", func() error { return checkArchive(ctx, cfg) }},
		{"connectors", func() error { return checkConnectors(ctx, cfg) }},
		{"certificate", func() error {
			if cfg.TLSCert == "" {
				return nil
			}
			_, err := loadCertificate(cfg.TLSCert, cfg.TLSKey, log)
			return err
		}},
		{"tracing", func() error {
			t, err := telemetry.Open(ctx, version())
			if err != nil {
				return err
			}
			return t.Close()
		}},
		{"listen", func() error { return checkAddress(ctx, cfg.Listen) }},
		{"admin listen", func() error { return checkAddress(ctx, cfg.AdminListen) }},
	} {
		if err := c.ask(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", c.what, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "configuration, store and connectors are fine")
	return err
}

func checkStore(ctx context.Context, cfg Config, log *slog.Logger) (err error) {
	if !cfg.isRedis() {
		made, err := madeAlready(cfg)
		if err != nil || !made {
			return err
		}
		return pebblestore.Check(ctx, cfg.folder(), pebblestore.Options{Logger: log})
	}
	store, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, cfg.StoreTimeout)
	defer cancel()
	return store.Ready(ctx)
}

// madeAlready says whether the embedded store is there. One that is not is made
// by serve, with its keys; here it only has to be possible.
func madeAlready(cfg Config) (bool, error) {
	if cfg.SecretKey == "" {
		raw, err := os.ReadFile(filepath.Join(cfg.folder(), secretKeyFile))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, checkFolder(cfg.folder())
		case err != nil:
			return false, fmt.Errorf("read %s: %w", secretKeyFile, err)
		}
		if _, err := seal.Parse(string(raw)); err != nil {
			return false, errors.New("the kept secret key is not 32 bytes in base64")
		}
	}
	entries, err := os.ReadDir(cfg.folder())
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return false, checkFolder(cfg.folder())
	}
	if err != nil {
		return false, fmt.Errorf("read data folder: %w", err)
	}
	return true, nil
}

// checkFolder says whether a folder could be made, or written in if it is there.
func checkFolder(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find folder: %w", err)
	}
	for {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) != path {
			path = filepath.Dir(path)
			continue
		}
		if err != nil {
			return fmt.Errorf("look at folder: %w", err)
		}
		if !info.IsDir() {
			return errors.New("the folder cannot be made: something on its path is no folder")
		}
		break
	}
	f, err := os.CreateTemp(path, ".check-")
	if err != nil {
		return fmt.Errorf("write in folder: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func checkConnectors(ctx context.Context, cfg Config) error {
	a := &App{cfg: cfg}
	registry, err := a.openRegistry() // without a register: only what is built in and in the folder
	if err != nil {
		return err
	}
	return registry.Reload(ctx)
}

// checkAddress says whether an address could be listened on. One in use is, by
// the gateway that is to be replaced perhaps.
func checkAddress(ctx context.Context, addr string) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.Close()
}

func healthCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "healthcheck", Args: noArgs,
		Short: "Ask the gateway beside this command whether it runs (for a container's HEALTHCHECK)",
		Long: `Ask /healthz on the admin listener of the gateway with the same configuration,
and exit 0 if it answers that it runs, 1 if not.`,
	}
	load := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return askHealth(cmd.Context(), cfg.AdminListen)
	}
	return cmd
}

// healthPatience is below the time-out in the Dockerfile.
const healthPatience = 3 * time.Second

func askHealth(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("admin listener: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost" // it listens on all addresses
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("admin listener: %w", err)
	}
	// Its own transport: no proxy stands between a gateway and itself.
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask gateway: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("ask gateway: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the gateway answered %d", resp.StatusCode)
	}
	return nil
}
