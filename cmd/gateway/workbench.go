package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/connectors/workbench"
)

func connectorsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "connectors", Short: "Write and test connectors"}
	cmd.AddCommand(
		benchCommand("lint PATH…", "Say what is wrong with manifests: files, or folders that hold connector.yaml",
			func(ctx context.Context, b *workbench.Bench, s workbench.Subject) []workbench.Finding {
				return b.Lint(ctx, s)
			}),
		benchCommand("test PATH…", "Run the fixtures of manifests, and play a failing vendor against each action",
			func(ctx context.Context, b *workbench.Bench, s workbench.Subject) []workbench.Finding {
				return b.Test(ctx, s)
			}),
		newConnectorCommand(),
	)
	return cmd
}

// errFindings ends a command whose findings are printed already.
type errFindings int

func (n errFindings) Error() string { return fmt.Sprintf("%d found", int(n)) }

func benchCommand(use, short string, run func(context.Context, *workbench.Bench, workbench.Subject) []workbench.Finding) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				return usageError{errors.New("name at least one manifest or folder")}
			}
			subjects, err := workbench.Find(paths)
			if err != nil {
				return err
			}
			bench, err := workbench.New()
			if err != nil {
				return err
			}
			found := 0
			for _, s := range subjects {
				list := run(cmd.Context(), bench, s)
				found += len(list)
				for _, f := range list {
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), f); err != nil {
						return err
					}
				}
				if len(list) == 0 {
					if _, err := fmt.Fprintln(cmd.OutOrStdout(), s.File+": ok"); err != nil {
						return err
					}
				}
			}
			if found > 0 {
				return errFindings(found)
			}
			return nil
		},
	}
}

func newConnectorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "new NAME", Short: "Write a commented connector and its fixtures to start from"}
	dir := cmd.Flags().String("dir", ".", "folder of connectors to write it into")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError{errors.New("name the connector")}
		}
		folder, err := workbench.Start(*dir, args[0])
		if errors.Is(err, workbench.ErrName) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s/connector.yaml and fixtures.yaml\n", folder)
		return err
	}
	return cmd
}
