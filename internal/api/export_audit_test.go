package api_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/trail"
)

func accept(media string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Accept", media) }
}

func TestExportIsAskedForByName(t *testing.T) {
	for _, c := range []struct {
		query, accept string
		media         string
	}{
		{"", "", "application/json"},
		{"", "*/*", "application/json"},
		{"", "text/*", "application/json"},
		{"", "text/html,application/xhtml+xml,*/*;q=0.8", "application/json"},
		{"", "application/x-ndjson", "application/x-ndjson"},
		{"", "Text/CSV", "text/csv; charset=utf-8"},
		{"", "text/csv;q=0.5, application/x-ndjson", "application/x-ndjson"},
		{"", "application/json;q=0.1, text/csv;q=0.2", "text/csv; charset=utf-8"},
		{"", "text/csv;q=0", "application/json"},
		{"", "text/csv;q=x, ;;", "application/json"},
		{"format=csv", "application/json", "text/csv; charset=utf-8"},
		{"format=ndjson", "", "application/x-ndjson"},
		{"format=json", "text/csv", "application/json"},
	} {
		g := newGateway(t)
		g.query = func(ledger.Scope, audit.Filter, trail.Page) ([]audit.Entry, string, error) { return nil, "", nil }
		g.export = func(_ ledger.Scope, e trail.Export, out io.Writer) error {
			require.Equal(t, strings.HasPrefix(c.media, "text/csv"), e.Format == trail.CSV)
			_, err := io.WriteString(out, "{}\n")
			return err
		}
		a := g.send("GET", "/v1/audit?"+c.query, "", accept(c.accept))
		require.Equal(t, 200, a.status)
		require.Equal(t, c.media, a.header.Get("Content-Type"), "%+v", c)
		require.Equal(t, c.media != "application/json", strings.HasPrefix(a.header.Get("Content-Disposition"), "attachment"))
	}
}

func TestExportTakesTheSameFilters(t *testing.T) {
	g := newGateway(t)
	g.export = func(scope ledger.Scope, e trail.Export, out io.Writer) error {
		require.Equal(t, ledger.ScopeOf("acme"), scope)
		require.Equal(t, trail.Export{Cursor: "c~", Sealed: true, Filter: audit.Filter{
			Event: audit.Held, Connection: "billing", Outcome: "held", Meta: map[string]string{"run": "7"}, Until: created.Truncate(time.Second).UTC(),
		}}, e)
		return nil
	}
	until := created.Truncate(time.Second).UTC().Format(time.RFC3339)
	a := g.send("GET", "/v1/audit?format=ndjson&event=held&connection=billing&outcome=held&meta.run=7&sealed=true&cursor=c~&until="+url.QueryEscape(until), "")
	require.Equal(t, 200, a.status)
	require.Empty(t, a.body, "nothing selected is an answer too")
	require.Equal(t, "application/x-ndjson", a.header.Get("Content-Type"))

	g.export = func(ledger.Scope, trail.Export, io.Writer) error { return trail.ErrCursor }
	for _, query := range []string{"cursor=x", "limit=5", "order=newest", "sealed=yes", "event=x", "state=held"} {
		a := g.send("GET", "/v1/audit?format=csv&"+query, "")
		require.Equal(t, "invalid_request", a.code(), query)
		require.Empty(t, a.header.Get("Content-Disposition"))
	}
	require.Equal(t, "invalid_request", g.send("GET", "/v1/audit?format=xml", "").code())
	require.Equal(t, "invalid_request", g.send("GET", "/v1/audit?sealed=true", "").code(), "of an export only")
	require.Equal(t, "forbidden", g.send("GET", "/v1/audit?format=csv", "", func(r *http.Request) {
		g.authenticate = func(string) (tenants.Principal, error) { return someTenant(tenants.ScopeDo), nil }
	}).code())
}

// What broke off does not look whole.
func TestABrokenExportIsCut(t *testing.T) {
	g := newGateway(t)
	g.export = func(_ ledger.Scope, _ trail.Export, out io.Writer) error {
		_, err := io.WriteString(out, "a row\n")
		require.NoError(t, err)
		return errors.New("the archive is damaged")
	}
	server := httptest.NewServer(g.public)
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/v1/audit?format=ndjson", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+tenantKey)
	resp, err := server.Client().Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	require.Equal(t, "a row\n", string(got))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	server.Close()
	require.Contains(t, g.logs.String(), "the archive is damaged")
}

// A client that does not read stops the export, and nothing piles up for it; one
// that leaves ends it, and is no error of the gateway's.
func TestAClientThatDoesNotReadHoldsTheExportBack(t *testing.T) {
	g := newGateway(t)
	written, ended := make(chan int, 1<<16), make(chan error, 1)
	g.export = func(_ ledger.Scope, _ trail.Export, out io.Writer) error {
		line := []byte(strings.Repeat("x", 63<<10) + "\n")
		for {
			n, err := out.Write(line)
			if err != nil {
				ended <- err
				return fmt.Errorf("write export: %w", err)
			}
			written <- n
		}
	}
	server := httptest.NewServer(g.public)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET /v1/audit?format=csv HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+tenantKey+"\r\n\r\n")
	require.NoError(t, err)
	total := 0
	for quiet := false; !quiet; {
		select {
		case n := <-written:
			total += n
			require.Less(t, total, 64<<20, "more than the system keeps for a connection")
		case <-time.After(300 * time.Millisecond):
			quiet = true
		}
	}
	require.Positive(t, total)
	require.NoError(t, conn.Close())
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		require.Fail(t, "it goes on without a client")
	}
	server.Close()
	require.NotContains(t, g.logs.String(), `"level":"ERROR"`)
	require.Contains(t, g.logs.String(), `"route":"/v1/audit"`)
}

func TestExportsAtOnceAreBounded(t *testing.T) {
	g := newGateway(t)
	running, release := make(chan struct{}), make(chan struct{})
	g.export = func(ledger.Scope, trail.Export, io.Writer) error {
		running <- struct{}{}
		<-release
		return nil
	}
	ended := make(chan int, 2)
	for range 2 {
		go func() { ended <- g.send("GET", "/v1/audit?format=csv", "").status }()
		<-running
	}
	a := g.send("GET", "/v1/audit?format=csv", "")
	require.Equal(t, "rate_limited", a.code())
	require.Equal(t, "10", a.header.Get("Retry-After"))
	close(release)
	require.Equal(t, []int{200, 200}, []int{<-ended, <-ended})

	g.export = func(ledger.Scope, trail.Export, io.Writer) error { return nil }
	require.Equal(t, 200, g.send("GET", "/v1/audit?format=csv", "").status, "a place that was left is free")
}
