package dedupe

import "testing"

func BenchmarkRecord(b *testing.B) {
	rec := earlier()["settled"]
	data := encodeRecord(rec)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			data = encodeRecord(rec)
		}
		b.ReportMetric(float64(len(data)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeRecord(rec.ID, data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
