package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/telemetry"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "serve", Short: "Run the gateway", Args: noArgs}
	load := configFlags(cmd)
	check := cmd.Flags().Bool("check", false, "say what is wrong with the configuration and what it names, and exit: 0 nothing, 1 something")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if usage := (usageError{}); *check && errors.As(err, &usage) {
			return usage.error // a finding, not a mistake in the command
		}
		if err != nil {
			return err
		}
		log := newLogger(cmd.ErrOrStderr())
		redisstore.RouteLibraryLog(log) // for the whole process, so here and nowhere else
		telemetry.RouteErrors(log)      // likewise
		tuneCollector()                 // likewise
		if *check {
			return checkConfig(cmd.Context(), cfg, log, cmd.OutOrStdout())
		}
		return serve(cmd.Context(), cfg, log, cmd.OutOrStdout())
	}
	return cmd
}

func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// serve runs the gateway until ctx ends, then drains.
func serve(ctx context.Context, cfg Config, log *slog.Logger, out io.Writer) error {
	app, err := open(ctx, cfg, log)
	if err != nil {
		return err
	}
	if app.newAdminKey != "" {
		// Printed once, where only who started the gateway looks; never logged.
		if _, err := fmt.Fprintf(out, "platform admin key, shown only now: %s\n", app.newAdminKey); err != nil {
			return errors.Join(err, app.Close())
		}
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	if err := app.Start(); err != nil {
		return errors.Join(err, app.Close())
	}
	for {
		select {
		case <-hup:
			_ = app.Reload(ctx) // what went wrong is logged, and the old connectors stay
			continue
		case <-ctx.Done():
		case err = <-app.failed:
		}
		log.Info("draining")
		return errors.Join(err, app.Close())
	}
}

func storeInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init", Args: noArgs,
		Short: "Prepare a new Redis, once: an empty one is either new or lost, and only you know",
	}
	load := configFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		if !cfg.isRedis() {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "the embedded store needs no preparation: serve makes it")
			return err
		}
		if err := initStore(cmd.Context(), redisOptions(cfg, newLogger(cmd.ErrOrStderr()))); err != nil {
			return fmt.Errorf("prepare store: %w", err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "store prepared; gateways may serve on it")
		return err
	}
	return cmd
}

// initStore says that a Redis is new, and that in its audit. The row cannot come
// first, into a store that is none yet; should the process end in between, it is
// missing, and whoever repeats the command is told that the store is prepared.
func initStore(ctx context.Context, o redisstore.Options) (err error) {
	if err := redisstore.Init(ctx, o); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	store, err := redisstore.Open(ctx, o)
	if err != nil {
		return err //nolint:wrapcheck // likewise
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	row := audit.Caller{Actor: audit.System(), Front: "cli"}.Row(audit.StoreInitialized)
	return audit.NewLog(store).Append(ctx, ledger.Platform, row) //nolint:wrapcheck // likewise
}

func redisOptions(cfg Config, log *slog.Logger) redisstore.Options {
	return redisstore.Options{
		URL: cfg.Store, Timeout: cfg.StoreTimeout, Ack: cfg.RedisAck, Pipeline: true, Logger: log,
	}
}
