package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
)

func TestVerifySaysWhatTheLogProves(t *testing.T) {
	g := newGateway(t)
	g.proof = archive.Report{
		Tenant: "acme", Begins: 5, Proven: 8, ProvenAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Segments: 2, Rows: 8,
		Findings: []archive.Finding{{Kind: archive.ChangedRow, Segment: 2, Row: 9, Detail: "it does not fit"}}, More: 3,
	}
	a := g.send("GET", "/v1/audit/verify", "")
	require.Equal(t, `{"whole":false,"tenant":"acme","scope":"`+strings.Repeat("0", 32)+`","segments":2,"rows":8,"begins_at_row":5,`+
		`"proven_through_row":8,"proven_through":"2026-03-01T12:00:00.000Z",`+
		`"findings":[{"kind":"changed_row","segment":2,"row":9,"detail":"it does not fit"}],"more_findings":3}`, string(a.body))
	require.Equal(t, "invalid_request", g.send("GET", "/v1/audit/verify?limit=1", "").code())
}

func TestCheckpointsPage(t *testing.T) {
	g := newGateway(t)
	for n := uint64(3); n > 0; n-- {
		g.checkpoints = append(g.checkpoints, archive.Checkpoint{Type: "checkpoint", Segment: n, Seq: 4 * n, Signature: []byte("s")})
	}
	line := func(i int) string { return strings.TrimSpace(string(g.checkpoints[i].Line())) }
	a := g.send("GET", "/v1/audit/checkpoints?limit=2", "")
	require.Equal(t, `{"keys":[],"data":[`+line(0)+","+line(1)+`],"next_cursor":"2"}`, string(a.body))
	a = g.send("GET", "/v1/audit/checkpoints?limit=2&cursor=2", "")
	require.Equal(t, `{"keys":[],"data":[`+line(2)+`]}`, string(a.body))
	for _, bad := range []string{"0", "-1", "x", "01", "99999999999999999999"} {
		require.Equal(t, "invalid_request", g.send("GET", "/v1/audit/checkpoints?cursor="+bad, "").code(), bad)
	}
}
