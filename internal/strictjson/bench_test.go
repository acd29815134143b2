package strictjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"holdfast.dev/gateway/internal/strictjson"
)

// invoice is a body like those that agents send, of about size bytes.
func invoice(size int) []byte {
	var lines []string
	for n, i := 0, 0; n < size-110; i++ {
		lines = append(lines, fmt.Sprintf(`{"sku":"SKU-%05d","description":"Consulting — day %d","quantity":%d,"unit_price":%d.%02d}`, i, i, i%9+1, 100+i, i%100))
		n += len(lines[i]) + 1
	}
	return []byte(`{"customer":"cus_N9f2c81e7","currency":"eur","days_until_due":30,"auto_advance":false,"lines":[` + strings.Join(lines, ",") + `]}`)
}

func BenchmarkGuard(b *testing.B) {
	for _, size := range []int{300, 3_000, 30_000} {
		raw := invoice(size)
		run := func(name string, f func() error) {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("json.Valid", func() error {
			if !json.Valid(raw) {
				return fmt.Errorf("invalid")
			}
			return nil
		})
		run("Sound", func() error {
			if _, ok := strictjson.Sound(raw); !ok {
				return fmt.Errorf("unsound")
			}
			return nil
		})
		run("Check", func() error { return strictjson.Check(raw) })
		var room []byte
		run("AppendCanonical", func() (err error) { room, err = strictjson.AppendCanonical(room[:0], raw); return err })
	}
}
