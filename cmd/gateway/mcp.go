package main

import (
	"context"
	"io"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/mcp"
)

// mcpFront makes the front that serves /mcp out of the API.
func (a *App) mcpFront(api http.Handler) http.Handler {
	return mcp.New(mcp.Config{API: mcp.InProcess(api), Version: version(), Logger: a.log, Every: a.cfg.progress}).Handler()
}

// mcpCommand bridges an MCP client that starts its servers itself to a gateway
// somewhere. Nothing but messages goes to standard output.
func mcpCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "mcp", Short: "Serve MCP on standard input and output, for a gateway somewhere", Args: noArgs}
	at := deploymentFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := at()
		if err != nil {
			return err
		}
		return bridge(cmd.Context(), d, os.Stdin, os.Stdout, cmd.ErrOrStderr())
	}
	return cmd
}

func bridge(ctx context.Context, d *deployment, in io.ReadCloser, out io.WriteCloser, log io.Writer) error {
	server := mcp.New(mcp.Config{
		API: roundTripper(d.client.Do), BaseURL: d.base, Key: d.key, Version: version(), Logger: newLogger(log),
	})
	err := server.Bridge(ctx, in, out)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // told to end
	}
	return err
}

// roundTripper sends by a client, with its time-out and its rule on redirects.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
