package archive

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	segments prometheus.Counter
	rows     prometheus.Counter
	failures prometheus.Counter
}

func newMetrics(r prometheus.Registerer, b *Backlog, now func() time.Time) (*metrics, error) {
	m := &metrics{
		segments: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_audit_segments_total", Help: "Segments of audit rows this gateway put into the archive.",
		}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_audit_sealed_rows_total", Help: "Audit rows this gateway put into the archive.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_audit_archive_failures_total", Help: "Attempts at the audit archive that failed. Rows stay in the store meanwhile.",
		}),
	}
	for _, c := range []prometheus.Collector{
		m.segments, m.rows, m.failures,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holdfast_audit_unsealed_rows", Help: "Audit rows this gateway knows of that are not in the archive yet.",
		}, func() float64 {
			rows, _ := b.Unsealed()
			return float64(rows)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holdfast_audit_seal_lag_seconds", Help: "Age of the oldest audit row this gateway knows of that is not in the archive yet.",
		}, func() float64 {
			_, oldest := b.Unsealed()
			if oldest.IsZero() {
				return 0
			}
			return max(0, now().Sub(oldest).Seconds())
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "holdfast_audit_blocked", Help: "1 while new writes are stopped because too many audit rows wait to be archived.",
		}, func() float64 {
			if b.Room() != nil {
				return 1
			}
			return 0
		}),
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
