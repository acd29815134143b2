package identity_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"holdfast.dev/gateway/internal/identity"
)

// BenchmarkDerive is check, canonical form and hash, next to a bare
// json.Valid of the same bytes.
func BenchmarkDerive(b *testing.B) {
	for _, size := range []int{300, 3_000, 30_000} {
		line := `{"sku":"SKU-00017","description":"Consulting — day 17","quantity":8,"unit_price":117.25},`
		lines := strings.TrimSuffix(strings.Repeat(line, max(1, (size-110)/len(line))), ",")
		raw := `{"customer":"cus_N9f2c81e7","currency":"eur","days_until_due":30,"auto_advance":false,"lines":[` + lines + `]}`
		in := input(body(raw))
		b.Run(fmt.Sprintf("json.Valid/%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if !json.Valid(in.Body) {
					b.Fatal("invalid")
				}
			}
		})
		b.Run(fmt.Sprintf("Derive/%d", size), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := identity.Derive(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
