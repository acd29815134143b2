package api

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/actions"
)

// net/http answers a request that it could not read, or that the strict reader
// broke off, by itself and in plain text: no handler ever sees it. So that these
// answers are problems like all others, they are replaced on their way out.

// bareHeaders are what stands between the status line and the text of such an
// answer (net/http, conn.serve). No answer of a handler looks like it: those have
// a Date and begin with Cache-Control.
var bareHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// bareStatus says whether an answer is one that net/http made by itself, and its
// status.
func bareStatus(answer []byte) (status int, ok bool) {
	rest, found := bytes.CutPrefix(answer, []byte("HTTP/1.1 "))
	end := bytes.IndexByte(rest, '\r')
	if !found || end < 3 || !bytes.HasPrefix(rest[end:], bareHeaders) {
		return 0, false
	}
	status, err := strconv.Atoi(string(rest[:3]))
	return status, err == nil && http.StatusText(status) != ""
}

// unreadable is the answer to a request that could not be read.
func unreadable(status int) []byte {
	p := refuse(actions.InvalidRequest, "This is not one well-formed HTTP request: its framing or its headers can be read in more than one way, or not at all. Nothing was done and the connection is closed; send it again in proper form.")
	if status == http.StatusRequestHeaderFieldsTooLarge {
		p = refuse(tooLarge, fmt.Sprintf("The headers of the request are larger than %d bytes, so nothing was done and the connection is closed. Send less.", maxHeaderBytes))
	}
	p.status = status
	id := newRequestID(time.Now())
	body := p.encode(id)
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, h := range [][2]string{
		{"Cache-Control", "no-store"}, {"Connection", "close"}, {"Content-Length", strconv.Itoa(len(body))},
		{"Content-Type", typeProblem}, {headerRequestID, id}, {"X-Content-Type-Options", "nosniff"},
	} {
		fmt.Fprintf(&out, "%s: %s\r\n", h[0], h[1])
	}
	out.WriteString("\r\n")
	out.Write(body)
	return out.Bytes()
}

// Write puts a problem in the place of what net/http says by itself.
func (c *strictConn) Write(p []byte) (int, error) {
	status, bare := bareStatus(p)
	if !bare {
		return c.Conn.Write(p) //nolint:wrapcheck // errors of a connection are its user's
	}
	if _, err := c.Conn.Write(unreadable(status)); err != nil {
		return 0, err //nolint:wrapcheck // as above
	}
	return len(p), nil
}
