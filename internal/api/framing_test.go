package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
)

// listening serves the gateway on a real socket, as the program does.
func listening(t *testing.T, g *gateway) string {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := api.HTTPServer(g.public, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- server.Serve(api.Strict(socket)) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return socket.Addr().String()
}

// exchange writes bytes and reads all that comes until the server closes.
func exchange(t *testing.T, addr string, pieces ...string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	for _, p := range pieces {
		_, err = io.WriteString(conn, p)
		require.NoError(t, err)
	}
	answer, err := io.ReadAll(conn)
	require.NoError(t, err, "the server closes by itself: %q", answer)
	return string(answer)
}

const (
	doLine = "POST /v1/do HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + tenantKey + "\r\nContent-Type: application/json\r\n"
	second = "GET /v1/connectors HTTP/1.1\r\nHost: x\r\n\r\n"
)

func chunked(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

// Requests that two readers could take apart differently get 400, the connection
// is closed, and nothing of them or behind them is done.
func TestAmbiguousFramingIsRefused(t *testing.T) {
	length := fmt.Sprintf("Content-Length: %d\r\n", len(smallest))
	for name, request := range map[string]string{
		"length, then coding":       doLine + length + "Transfer-Encoding: chunked\r\n\r\n" + chunked(smallest) + second,
		"coding, then length":       doLine + "Transfer-Encoding: chunked\r\n" + length + "\r\n" + chunked(smallest) + second,
		"coding and length 0":       doLine + "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + chunked(smallest),
		"two lengths":               doLine + length + "Content-Length: 5\r\n\r\n" + smallest,
		"two equal lengths":         doLine + length + length + "\r\n" + smallest,
		"a list of lengths":         doLine + fmt.Sprintf("Content-Length: %d, %d\r\n\r\n", len(smallest), len(smallest)) + smallest,
		"a signed length":           doLine + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(smallest)) + smallest,
		"a length in hex":           doLine + "Content-Length: 0x10\r\n\r\n" + smallest,
		"two codings":               doLine + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(smallest),
		"another coding":            doLine + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked(smallest),
		"identity":                  doLine + "Transfer-Encoding: identity\r\n" + length + "\r\n" + smallest,
		"a disguised coding":        doLine + "Transfer-Encoding: xchunked\r\n" + length + "\r\n" + smallest,
		"blank before the colon":    doLine + "Transfer-Encoding : chunked\r\n" + length + "\r\n" + chunked(smallest),
		"tab after the colon":       doLine + "Transfer-Encoding:\tchunked\r\n" + length + "\r\n" + chunked(smallest),
		"a folded line":             doLine + "X-A: b\r\n c\r\n" + length + "\r\n" + smallest,
		"a folded coding":           doLine + "Transfer-Encoding:\r\n chunked\r\n" + length + "\r\n" + chunked(smallest),
		"a bare line feed":          strings.Replace(doLine, "Host: x\r\n", "Host: x\n", 1) + length + "\r\n" + smallest,
		"bare line feeds only":      strings.ReplaceAll(doLine+length+"\r\n", "\r\n", "\n") + smallest,
		"a bare line feed ends it":  doLine + length + "\n" + smallest,
		"a bare carriage return":    doLine + "X-A: b\rContent-Length: 5\r\n" + length + "\r\n" + smallest,
		"a header without a name":   doLine + ": x\r\n" + length + "\r\n" + smallest,
		"a header without a colon":  doLine + "nonsense\r\n" + length + "\r\n" + smallest,
		"two hosts":                 doLine + "Host: y\r\n" + length + "\r\n" + smallest,
		"no host":                   strings.Replace(doLine, "Host: x\r\n", "", 1) + length + "\r\n" + smallest,
		"a NUL in a header":         doLine + "X-A: \x00\r\n" + length + "\r\n" + smallest,
		"chunk size with a sign":    doLine + "Transfer-Encoding: chunked\r\n\r\n+" + chunked(smallest),
		"chunk size with a prefix":  doLine + "Transfer-Encoding: chunked\r\n\r\n0x" + chunked(smallest),
		"chunk size too long":       doLine + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("0", 20) + "ffffffffffffffff1\r\n" + smallest,
		"chunk with a bare end":     doLine + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\n%s\n0\n\n", len(smallest), smallest),
		"chunk longer than it says": doLine + "Transfer-Encoding: chunked\r\n\r\n2\r\n" + smallest + "\r\n0\r\n\r\n",
		"a coding in HTTP/1.0":      strings.Replace(doLine, "1.1", "1.0", 1) + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(smallest) + second,
		"one behind a long path":    strings.Replace(strings.Replace(doLine, "1.1", "1.0", 1), "/do", "/do?"+strings.Repeat("a", 300), 1) + "Transfer-Encoding: chunked\r\n\r\n" + chunked(smallest),
		"a length in the trailer":   doLine + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\nContent-Length: 3\r\n\r\n", len(smallest), smallest),
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			g.do = func(context.Context, actions.Request) (actions.Reply, error) {
				t.Error("it was done")
				return actions.Reply{}, &actions.Error{Code: actions.NotSent}
			}
			answer := exchange(t, listening(t, g), request)
			require.True(t, strings.HasPrefix(answer, "HTTP/1.1 400 "), "%q", answer)
			require.Contains(t, answer, "Connection: close")
			require.Equal(t, 1, strings.Count(answer, "HTTP/1.1 "), "one answer: %q", answer)
			isProblem(t, answer, 400, "invalid_request")
		})
	}
}

// isProblem insists that bytes from the wire are one whole problem.
func isProblem(t *testing.T, answer string, status int, code string) {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	require.NoError(t, err, "%q", answer)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, status, r.StatusCode)
	require.True(t, r.Close)
	require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"))
	require.Equal(t, "no-store", r.Header.Get("Cache-Control"))
	var p struct {
		Status    int
		Code      string
		RequestID string `json:"request_id"`
	}
	require.NoError(t, json.Unmarshal(body, &p), "%q", answer)
	require.Equal(t, status, p.Status)
	require.Equal(t, code, p.Code)
	require.NotEmpty(t, p.RequestID)
	require.Equal(t, r.Header.Get("Request-Id"), p.RequestID)
}

// What is sound passes, in whatever pieces it arrives.
func TestSoundFramingPasses(t *testing.T) {
	g := newGateway(t)
	bodies := 0
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		bodies++
		return actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{}`)}, nil
	}
	addr := listening(t, g)
	pretty := "{\n\"connection\":\"billing\",\r\n\r\n\"action\":\n\"create_invoice\"}"
	both := doLine + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(pretty), pretty) +
		doLine + "Transfer-Encoding: Chunked\r\n\r\n" + fmt.Sprintf("5;ext=\"a\"\r\n%s\r\n%X\r\n%s\r\n000\r\nX-Trailer: y\r\n\r\n", pretty[:5], len(pretty)-5, pretty[5:]) +
		"\r\n" + "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("a", 5000) + "\r\nConnection: close\r\n\r\n"
	for _, size := range []int{1, 7, len(both)} {
		bodies = 0
		var pieces []string
		for rest := both; rest != ""; {
			n := min(size, len(rest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		answer := exchange(t, addr, pieces...)
		require.Equal(t, 2, bodies, "%q", answer)
		require.Equal(t, 3, strings.Count(answer, "HTTP/1.1 200 OK"), "%q", answer)
	}
}

// A client may ask for leave to send its body.
func TestExpectContinue(t *testing.T) {
	g := newGateway(t)
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{}`)}, nil
	}
	conn, err := net.Dial("tcp", listening(t, g))
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, doLine+fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(smallest)))
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
	_, err = io.WriteString(conn, smallest)
	require.NoError(t, err)
	_, err = in.ReadString('\n')
	require.NoError(t, err)
	line, err = in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 200 OK\r\n", line)
}

// A body that is compressed is refused before anything is inflated, and the
// method is the one of the request line.
func TestNoInflationAndNoOverride(t *testing.T) {
	g := newGateway(t)
	for _, coding := range []string{"gzip", "deflate", "br", "zstd", "identity, gzip"} {
		a := g.send("POST", "/v1/do", smallest, with("Content-Encoding", coding))
		require.Equal(t, "unsupported_media_type", a.code(), coding)
	}
	g.conns.remove = func(string) error { t.Error("it was deleted"); return nil }
	for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		a := g.send("POST", "/v1/connections/c", "{}", with(header, "DELETE"))
		require.Equal(t, "method_not_allowed", a.code(), header)
	}
	require.Equal(t, "invalid_request", g.send("GET", "/v1/connections?_method=DELETE", "").code())
}

// Too large a head is refused by the server itself.
func TestHeadIsBounded(t *testing.T) {
	g := newGateway(t)
	answer := exchange(t, listening(t, g), "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\nX-A: "+strings.Repeat("a", 64<<10)+"\r\n\r\n")
	isProblem(t, answer, 431, "too_large")
}
