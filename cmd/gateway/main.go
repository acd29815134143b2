// Command gateway runs Holdfast: a write gateway for AI agents' tool calls.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	_ "time/tzdata" // TZ is followed where there is nothing but this binary

	"github.com/spf13/cobra"
)

// Exit codes (CONTRACT 8).
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command line or configuration that cannot be followed.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := command().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "gateway:", err)
	var usage usageError
	if errors.As(err, &usage) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "gateway",
		Short:         "Holdfast: no write twice, no answer lost, no doubt hidden",
		SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("there is no command %q; see gateway --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.CompletionOptions.DisableDefaultCmd = true
	store := &cobra.Command{Use: "store", Short: "Look after the store"}
	store.AddCommand(storeInitCommand(), acceptLossCommand())
	root.AddCommand(serveCommand(), healthCommand(), demoCommand(), connectorsCommand(), auditCommand(), heldCommand(), doctorCommand(), mcpCommand(), store, secretsCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "holdfast", version())
			return err
		},
	}
}

// release is the version that the image's build names: it has no git beside it
// that the toolchain could read (Dockerfile). Only the linker writes it.
var release string

// version is what the build was told or what the toolchain recorded of it.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

// configFlags adds a flag for each setting, and returns the function that loads
// the configuration once they are parsed.
func configFlags(cmd *cobra.Command) func() (Config, error) {
	flags := cmd.Flags()
	file := flags.String("config", "", "YAML file of settings")
	for _, s := range settings() {
		flags.String(s.name, "", s.usage+" ("+s.env()+")")
	}
	return func() (Config, error) {
		given := map[string]string{}
		for _, s := range settings() {
			if f := flags.Lookup(s.name); f.Changed {
				given["--"+s.name] = f.Value.String()
			}
		}
		c, err := loadConfig(given, os.Environ(), *file)
		if err != nil {
			return c, usageError{err}
		}
		return c, nil
	}
}
