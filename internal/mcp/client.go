package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// client makes requests to the REST API.
type client struct {
	transport http.RoundTripper
	base      string
	key       string
}

// traceKey marks, in a context, the trace that a message names for itself.
type traceKey struct{}

// traceable takes the trace that _meta names, as the field has agreed to write it
// there (W3C Trace Context). Whether it is one is for the API to judge; what no
// header could carry is none.
func traceable(ctx context.Context, meta map[string]any) context.Context {
	parent, _ := meta["traceparent"].(string)
	if parent == "" || !httpguts.ValidHeaderFieldValue(parent) {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, parent)
}

// answer is what the API said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) ok() bool { return a.status == http.StatusOK }

// maxAnswer bounds what is read of an answer: a result of the largest size, in
// base64, and what stands around it.
const maxAnswer = 64 << 20

var errNoAnswer = errors.New("the gateway gave no whole answer")

// call makes one request. An error means that no whole answer came; what became
// of the request is not known then.
func (c client) call(ctx context.Context, method, path string, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, fmt.Errorf("make request: %w", err)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
		req.GetBody = nil // without it no transport can send the request a second time by itself
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if parent, ok := ctx.Value(traceKey{}).(string); ok {
		req.Header.Set("Traceparent", parent)
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return answer{}, errNoAnswer // there is no body to read, but the connection itself
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(raw) > maxAnswer {
		return answer{}, errNoAnswer
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: raw}, nil
}

// InProcess carries requests to a handler of this process.
func InProcess(h http.Handler) http.RoundTripper { return inProcess{h} }

type inProcess struct{ handler http.Handler }

// RoundTrip serves the request on the caller's goroutine. A handler that breaks
// off (http.ErrAbortHandler) gives no answer.
func (p inProcess) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	defer func() {
		if recover() != nil {
			resp, err = nil, errNoAnswer
		}
	}()
	r.RequestURI = r.URL.RequestURI()
	p.handler.ServeHTTP(w, r)
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r}, nil
}

// recorder keeps an answer. httptest has one for tests.
type recorder struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if !w.wrote {
		w.status, w.wrote = status, true
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.wrote = true
	return w.body.Write(p)
}

// Flush does nothing: the answer is read when it is whole.
func (w *recorder) Flush() {}
