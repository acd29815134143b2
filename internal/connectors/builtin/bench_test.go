package builtin_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

// BenchmarkCreate is what a connector does of one write: the input, the plan, the
// verdict.
func BenchmarkCreate(b *testing.B) {
	c := load(b, "http-json@1")
	params := []byte(`{"collection":"things","document":{"id":1000042,"amount":1250,"note":"` + strings.Repeat("y", 260) + `"}}`)
	op := connectors.Op{
		Action: "create", Params: params, BaseURL: "http://127.0.0.1:1234",
		Marker: "0123456789abcdef0123456789abcdef", VendorKey: "3a1f2b60-1c52-4d3c-9b1e-6f0a2c4d5e6f",
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
	answer := connectors.Answer{Status: 201, Whole: true, Body: params, Header: http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {"300"}, "Date": {"Sun, 01 Mar 2026 12:00:00 GMT"},
	}}
	b.Run("validate", func(b *testing.B) {
		b.ReportAllocs()
		spec := c.Spec()
		for b.Loop() {
			require.NoError(b, spec.ValidateInput("create", params))
		}
	})
	b.Run("plan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Plan(context.Background(), op); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("judge", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v, err := c.Judge(context.Background(), op, answer); err != nil || v.Outcome != connectors.Succeeded {
				b.Fatal(v, err)
			}
		}
	})
}
