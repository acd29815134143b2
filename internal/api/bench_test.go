package api

import (
	"net/http"
	"strings"
	"testing"
)

// BenchmarkDecodeDo is what reading a `do` of 300 bytes costs.
func BenchmarkDecodeDo(b *testing.B) {
	raw := []byte(`{"connection":"c","action":"create","body":{"collection":"things","document":{"id":1000042,"amount":1250,"note":"` + strings.Repeat("y", 255) + `"}}}`)
	header := http.Header{"Content-Type": {"application/json"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeDo(raw, header); err != nil {
			b.Fatal(err)
		}
	}
}
