package api

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"holdfast.dev/gateway/internal/actions"
)

// Fronts as audit rows name them.
const (
	frontREST = "rest"
	frontMCP  = "mcp"
)

// envelope is how much longer an MCP message may be than the body of the call
// it makes.
const envelope = 64 << 10

// mcpHandler stands before the MCP front: it authenticates and limits a message
// as any other request. What the message asks for comes back as requests to the
// public API itself, which know by their context whose they are.
type mcpHandler struct {
	front   http.Handler
	maxBody int64
}

func (h *mcpHandler) post(c *call) error {
	c.front = frontMCP
	// A page in somebody's browser must not speak to a gateway beside it; the MCP
	// specification asks for this (transports, "Security Warning").
	if err := http.NewCrossOriginProtection().Check(c.r); err != nil {
		return refuse(actions.Forbidden, "A request from another origin's page is not taken, so nothing was done.").because(err)
	}
	raw, err := c.readJSON(h.maxBody + envelope)
	if err != nil {
		return err
	}
	// The SDK and http.Error have headers of their own.
	c.echo.Response().Before(func() { c.w.Header().Set("Cache-Control", "no-store") })
	r := c.r.WithContext(context.WithValue(c.ctx(), outerKey{}, c))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	h.front.ServeHTTP(c.w, r)
	return nil
}

// outerKey marks, in a context, the call of another front that a request is made
// for. No client can set it.
type outerKey struct{}

// outerOf returns the call that a request is made for, nil for a client's own.
func outerOf(r *http.Request) *call {
	outer, _ := r.Context().Value(outerKey{}).(*call)
	return outer
}

// inner serves the requests that the MCP front makes, with the address of who
// sent the message.
func inner(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := outerOf(r)
		if outer == nil {
			http.Error(w, "a request of no call", http.StatusInternalServerError)
			return
		}
		r.RemoteAddr, r.Host = outer.r.RemoteAddr, outer.r.Host
		r.Header["X-Forwarded-For"] = outer.r.Header["X-Forwarded-For"]
		next.ServeHTTP(w, r)
	})
}
