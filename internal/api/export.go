package api

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/trail"
)

// Media types of an export.
const (
	typeNDJSON = "application/x-ndjson"
	typeCSV    = "text/csv; charset=utf-8"
)

// Formats of the audit, as a parameter names them.
const (
	formatJSON   = "json"
	formatNDJSON = "ndjson"
	formatCSV    = "csv"
)

// How many exports run at once: each has a segment of the archive in memory, and
// all together must leave the gateway room for writes.
const (
	maxExports       = 16
	maxTenantExports = 2
)

// format is how the audit is asked for: by the parameter or, without one, by the
// header Accept. A page of JSON goes to whoever does not ask for an export by
// name.
func (c *call) format(q *query) string {
	switch f := q.text("format"); f {
	case formatJSON, formatNDJSON, formatCSV:
		return f
	case "":
		return accepted(c.r.Header.Values("Accept"))
	default:
		q.refuse("format", "this must be json, ndjson or csv")
		return formatJSON
	}
}

// accepted is the format that the header likes best (RFC 9110 section 12.5.1); of
// equals the first one named.
func accepted(values []string) string {
	best, most := formatJSON, 0.0
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if text, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(text, 64); err != nil {
				continue
			}
		}
		format := map[string]string{typeJSON: formatJSON, typeNDJSON: formatNDJSON, "text/csv": formatCSV}[media]
		if format != "" && q > most && q <= 1 {
			best, most = format, q
		}
	}
	return best
}

// export streams the rows of a scope. The parameters are those of a page, less
// what makes a page of it.
func (h *auditHandler) export(c *call, scope ledger.Scope, format string, also []string) error {
	q := c.query(slices.Concat(also, auditFilters(), []string{"format", "sealed", "cursor"})...)
	e := trail.Export{Filter: q.auditFilter(), Cursor: q.text("cursor"), Sealed: q.flag("sealed")}
	if err := q.err(); err != nil {
		return err
	}
	done, ok := h.exports.begin(scope)
	if !ok {
		p := refuse(rateLimited, "Too many exports run at once, so this one was not begun. Wait as long as Retry-After says, then repeat the same request.")
		p.retryAfter = 10 * time.Second
		return p
	}
	defer done()
	media, name := typeNDJSON, "audit.ndjson"
	if format == formatCSV {
		e.Format, media, name = trail.CSV, typeCSV, "audit.csv"
	}
	out := c.stream(media, name)
	err := h.log.Export(c.ctx(), scope, e, out)
	if err != nil && !out.gone && c.ctx().Err() == nil {
		return err
	}
	return out.end(err)
}

func (q *query) flag(name string) bool {
	switch q.text(name) {
	case "", "false":
		return false
	case "true":
		return true
	default:
		q.refuse(name, "this must be true or false")
		return false
	}
}

// exports counts those that run.
type exports struct {
	mu      sync.Mutex
	all     int
	byScope map[ledger.Scope]int
}

// begin takes a place, if there is one, until done is called.
func (e *exports) begin(scope ledger.Scope) (done func(), ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all >= maxExports || e.byScope[scope] >= maxTenantExports {
		return nil, false
	}
	if e.byScope == nil {
		e.byScope = map[ledger.Scope]int{}
	}
	e.all++
	e.byScope[scope]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.all--
		if e.byScope[scope]--; e.byScope[scope] == 0 {
			delete(e.byScope, scope)
		}
	}, true
}

// stream is an answer of any length. Nothing of it waits in the gateway for a
// client that does not read.
type stream struct {
	c           *call
	media, name string
	begun       bool
	gone        bool // the client is
}

// stream begins an answer with the first thing that is written, so that until
// then it can be a refusal.
func (c *call) stream(media, name string) *stream {
	return &stream{c: c, media: media, name: name}
}

// streamPiece is how much may be on its way to the client at once. It has
// writeTimeout to take that much.
const streamPiece = 64 << 10

func (s *stream) Write(p []byte) (n int, err error) {
	s.start()
	out := s.c.connection()
	for piece := range slices.Chunk(p, streamPiece) {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder in a test has none
		m, err := s.c.w.Write(piece)
		if err == nil {
			err = out.Flush()
		}
		n += m
		if err != nil {
			s.gone = true
			return n, fmt.Errorf("write answer: %w", err)
		}
	}
	return n, nil
}

func (s *stream) start() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.c.w.Header()
	h.Set("Content-Type", s.media)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": s.name}))
	s.c.w.WriteHeader(http.StatusOK)
}

// end ends an answer, also one that nothing was written to. One that broke off
// because its client is gone must not look whole, and needs no reason.
func (s *stream) end(err error) error {
	if err != nil {
		s.c.cut = true
		return err
	}
	s.start()
	_ = s.c.connection().SetWriteDeadline(time.Time{})
	return nil
}
