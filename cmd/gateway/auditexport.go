package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast.dev/gateway/internal/trail"
)

// errBroken: an export broke off; the output says where to go on.
var errBroken = errors.New("the export is not whole")

// exportStall is how long an export may bring nothing before it is given up: a
// gateway that reads from a slow archive is silent for some time.
const exportStall = 2 * time.Minute

func auditExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "export", Short: "Write the audit of a deployment to standard output", Args: noArgs,
		Long: `Write all audit rows that the filters select to standard output, oldest first.
Without filters, as NDJSON, that is the log itself, which gateway audit verify
proves whole. If it breaks off, or is interrupted, standard error says with which
--cursor to go on; what that brings belongs right behind what there is already.`,
	}
	x := &auditExport{at: deploymentFlags(cmd)}
	flags := cmd.Flags()
	flags.StringVar(&x.format, "format", "ndjson", "ndjson, or csv for a spreadsheet")
	flags.StringVar(&x.cursor, "cursor", "", "go on behind this row, as an earlier export said")
	flags.BoolVar(&x.sealed, "sealed", false, "only what is sealed, so that several exports one after another prove themselves whole")
	flags.StringVar(&x.tenant, "tenant", "", "with the platform admin key: the audit of this tenant")
	for _, f := range exportFilters() {
		flags.String(f.flag, "", f.usage)
	}
	flags.StringArrayVar(&x.meta, "meta", nil, "only rows with this label, NAME=VALUE; may be given several times")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		query, err := x.query(func(name string) string { v, _ := flags.GetString(name); return v })
		if err != nil {
			return usageError{err}
		}
		d, err := x.at()
		if err != nil {
			return err
		}
		return x.run(cmd.Context(), d, query, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

type exportFilter struct{ flag, usage string }

// exportFilters are the parameters of the API that are flags, with - for _.
func exportFilters() []exportFilter {
	return []exportFilter{
		{"event", "only this event"}, {"connection", "only of this connection"}, {"action", "only of this action"},
		{"action-id", "only of this write"}, {"key-id", "only by this API key, by its public id"},
		{"identity", "only of this identity, by its short id"}, {"outcome", "only with this outcome"},
		{"since", "only from this time on (RFC 3339)"}, {"until", "only before this time (RFC 3339)"},
	}
}

type auditExport struct {
	at                     func() (*deployment, error)
	format, cursor, tenant string
	sealed                 bool
	meta                   []string
}

func (x *auditExport) query(flag func(string) string) (url.Values, error) {
	if x.format != "ndjson" && x.format != "csv" {
		return nil, errors.New("--format must be ndjson or csv")
	}
	query := url.Values{"format": {x.format}}
	if x.sealed {
		query.Set("sealed", "true")
	}
	for _, f := range exportFilters() {
		if v := flag(f.flag); v != "" {
			query.Set(strings.ReplaceAll(f.flag, "-", "_"), v)
		}
	}
	for _, label := range x.meta {
		name, value, ok := strings.Cut(label, "=")
		if !ok {
			return nil, errors.New("--meta must be NAME=VALUE")
		}
		query.Set("meta."+name, value)
	}
	if x.cursor != "" {
		query.Set("cursor", x.cursor)
	}
	return query, nil
}

func (x *auditExport) run(ctx context.Context, d *deployment, query url.Values, out, say io.Writer) error {
	path := "/v1/audit"
	if x.tenant != "" {
		path = "/v1/tenants/" + url.PathEscape(x.tenant) + "/audit"
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stalled := time.AfterFunc(exportStall, stop)
	defer stalled.Stop()
	body, err := d.open(ctx, path+"?"+query.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	lines := &exportLines{csv: x.format == "csv", started: x.cursor != "", mark: x.cursor}
	err = lines.copy(out, body, func() { stalled.Reset(exportStall) })
	if cursor := lines.cursor(); cursor != "" {
		word := "it ended there; what comes later"
		if err != nil {
			word = "it broke off there; the rest"
		}
		_, _ = fmt.Fprintf(say, "%s: --cursor %s\n", word, cursor)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// open begins a call whose answer may be of any length.
func (d *deployment) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.base+path, nil)
	if err != nil {
		return nil, usageError{errors.New("the address cannot be used")}
	}
	req.Header.Set("Authorization", "Bearer "+d.key)
	client := *d.client
	client.Timeout = 0
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call gateway: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return nil, refusal(resp.StatusCode, raw)
}

// exportLines copies whole lines and knows where to go on behind the last one.
type exportLines struct {
	csv     bool
	started bool   // the names of the columns are behind us
	held    []byte // the header of a segment, until a row of it comes
	row     []byte // the last row
	mark    string // behind the row's cursor; before the first row, the cursor to start from
}

// maxExportLine is more than a line of an export has.
const maxExportLine = 16 << 20

func (l *exportLines) copy(out io.Writer, in io.Reader, alive func()) error {
	to := bufio.NewWriterSize(out, 64<<10)
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxExportLine)
	lines.Split(wholeLines)
	for lines.Scan() {
		alive()
		if err := l.put(to, lines.Bytes()); err != nil {
			return fmt.Errorf("write export: %w", err)
		}
	}
	if err := to.Flush(); err != nil {
		l.row, l.mark = nil, "" // nobody knows how much of it arrived
		return fmt.Errorf("write export: %w", err)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read export: %w", err)
	}
	return nil
}

// wholeLines splits behind line breaks and gives up what has none: it was cut.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

func (l *exportLines) put(to *bufio.Writer, line []byte) error {
	switch {
	case l.csv && !l.started:
		l.started = true
	case l.csv, bytes.HasPrefix(line, []byte(`{"type":"row",`)):
		l.row, l.mark = append(l.row[:0], line...), ""
	case bytes.HasPrefix(line, []byte(`{"type":"segment",`)):
		l.held = append(l.held[:0], line...)
		return nil
	case bytes.HasPrefix(line, []byte(`{"type":"checkpoint",`)):
		l.mark += trail.CheckpointMark
	}
	if _, err := to.Write(l.held); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	l.held = l.held[:0]
	_, err := to.Write(line)
	return err //nolint:wrapcheck // the caller does
}

// cursor is where to go on, "" at the beginning.
func (l *exportLines) cursor() string {
	switch {
	case l.row == nil:
		return l.mark
	case l.csv:
		record, err := csv.NewReader(bytes.NewReader(l.row)).Read()
		if err != nil || len(record) < 2 {
			return ""
		}
		return record[1]
	default:
		var row struct{ Cursor string }
		if json.Unmarshal(l.row, &row) != nil || row.Cursor == "" {
			return ""
		}
		return row.Cursor + l.mark
	}
}
