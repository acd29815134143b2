package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

func secretsCommand() *cobra.Command {
	secrets := &cobra.Command{Use: "secrets", Short: "Look after what is kept sealed"}
	reseal := &cobra.Command{
		Use: "reseal", Args: noArgs,
		Short: "Seal everything under the first secret key, so that the others can be let go",
		Long: `Seal credentials and the requests of unsettled writes under the first of the
secret keys. Run it after a new key was put in front (GATEWAY_SECRET_KEY=new,old)
and every gateway runs with both; after it the old key can be left out. On Redis
it runs beside the gateways; the embedded store has to be stopped for it.`,
	}
	load := configFlags(reseal)
	reseal.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		return resealAll(cmd.Context(), cfg, newLogger(cmd.ErrOrStderr()), cmd.OutOrStdout())
	}
	secrets.AddCommand(reseal)
	return secrets
}

// errNotResealed says that some values stay under another key; the output names
// them.
var errNotResealed = errors.New("not everything could be sealed under the first key")

func resealAll(ctx context.Context, cfg Config, log *slog.Logger, out io.Writer) (err error) {
	keys, err := loadSecrets(cfg)
	if err != nil {
		return err
	}
	store, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Ready(ctx); err != nil {
		return fmt.Errorf("store not ready: %w", err)
	}
	directory, err := tenants.New(tenants.Config{Store: store})
	if err != nil {
		return err
	}
	book, err := connections.NewBook(connections.Config{
		Store: store, Sealer: keys.ring, Validate: func(connections.Spec) error { return nil },
	})
	if err != nil {
		return err
	}
	claims := dedupe.New(dedupe.Config{Store: store, Lease: cfg.Lease, History: history(cfg)})
	caller := audit.Caller{Actor: audit.System(), Front: "cli"}
	credentials, requests, whole := 0, 0, true
	err = directory.Refs(ctx, func(ref tenants.Ref) error {
		scope := ref.Scope
		caller.Tenant = ref.Tenant
		done, err := book.Reseal(ctx, caller, scope)
		credentials += done.Connections
		for _, name := range done.Failed {
			whole = false
			_, _ = fmt.Fprintf(out, "connection %s: some of its credentials open under none of the keys; put them again\n", name)
		}
		if err != nil {
			return fmt.Errorf("reseal credentials: %w", err)
		}
		n, err := actions.Reseal(ctx, claims, keys.ring, scope)
		requests += n
		if errors.Is(err, ledger.ErrUnavailable) {
			return err
		}
		if err != nil {
			whole = false
			_, _ = fmt.Fprintln(out, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "sealed under the first key: %d connections, %d unsettled writes\n", credentials, requests)
	if !whole {
		err = errors.Join(err, errNotResealed)
	}
	return err
}
