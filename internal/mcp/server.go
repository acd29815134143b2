package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Config is what a Server is made of.
type Config struct {
	API     http.RoundTripper // carries requests to the REST API
	BaseURL string            // of the API; "" in process
	Key     string            // API key; "" in process, where the message has been authenticated
	Version string            // of the program
	Logger  *slog.Logger      // nil: nothing is logged

	// Every is how often a caller that asked for progress hears that a call still
	// runs; 0: five seconds.
	Every time.Duration
}

// Server offers the tools. It keeps nothing between messages and may be used
// from many goroutines.
type Server struct {
	api   client
	sdk   *sdk.Server
	log   *slog.Logger
	every time.Duration
}

const instructions = "Holdfast makes writes at vendors at most once and remembers the answer. Repeating a `do` call unchanged is always safe: it is never sent twice. " +
	"The first words of an answer say what happened: DONE, ALREADY DONE, NOT DONE or UNKNOWN. After UNKNOWN never send the same write in other words or under another key: it may have been done. " +
	"list_connections says what there is to write to, describe_action what an action takes."

// New returns a server with its tools.
func New(c Config) *Server {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Every <= 0 {
		c.Every = 5 * time.Second
	}
	if c.BaseURL == "" {
		c.BaseURL = "http://gateway"
	}
	s := &Server{
		api: client{transport: c.API, base: c.BaseURL, key: c.Key}, log: c.Logger, every: c.Every,
		sdk: sdk.NewServer(&sdk.Implementation{Name: "holdfast", Title: "Holdfast write gateway", Version: c.Version},
			&sdk.ServerOptions{
				Instructions: instructions,
				// No listChanged: without sessions there is nobody to tell. Who wants
				// to know lists the tools again.
				Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
				// The list depends on the key, so no cache may show it to others.
				SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
			}),
	}
	for _, t := range s.tools() {
		s.sdk.AddTool(t.described(), s.handler(t))
	}
	s.sdk.AddReceivingMiddleware(s.actionTools)
	return s
}

// Handler serves the streamable HTTP transport, without sessions: any replica
// answers any message, and a message that is sent again after a cut stream is a
// message like any other. It authenticates nobody.
func (s *Server) Handler() http.Handler {
	stream := sdk.NewStreamableHTTPHandler(
		func(*http.Request) *sdk.Server { return s.sdk },
		// The caller has bounded the body already. The SDK's default answers the
		// current version of the protocol (2026-07-28) as unsupported.
		&sdk.StreamableHTTPOptions{Stateless: true, MaxRequestBodyBytes: -1},
	)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the message did not arrive whole", http.StatusBadRequest)
			return
		}
		if err := checkEnvelope(raw); err != nil {
			refuseMessage(w, http.StatusBadRequest, refusal(raw, envelopeCode(raw), err))
			return
		}
		if text(raw, "method") == "subscriptions/listen" {
			// It would hold a stream open on which nothing ever comes, and a drain with it.
			refuseMessage(w, http.StatusNotFound, refusal(raw, codeNoMethod, errNoNews))
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(raw))
		stream.ServeHTTP(w, r)
	})
}

// Bridge serves one client over a pair of pipes until it hangs up or ctx ends.
func (s *Server) Bridge(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	shared := &sharedWriter{to: out}
	err := s.sdk.Run(ctx, &sdk.IOTransport{Reader: &checkedLines{from: in, out: shared}, Writer: shared, MaxLineLength: maxLine})
	if err != nil {
		return fmt.Errorf("serve mcp: %w", err)
	}
	return nil
}
