package benchtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// telemetryContest: what the log costs, and tracing that keeps nothing.
func telemetryContest(t testing.TB, b *Bench) Contest {
	const callers = 64
	r := newRig(t, b)
	plain := embedded(t, b.Program, r.vendor.addr)
	mute := embedded(t, b.silent(t), r.vendor.addr)
	traced := embedded(t, b.Program, r.vendor.addr,
		// Nobody is there, and nobody is sent anything.
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9", "OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0")
	r.close = append(r.close, plain.close, mute.close, traced.close)
	return Contest{
		Name: "telemetry", Times: 2, Close: r.end,
		Contestants: []Contestant{
			{"log", r.round(plain.fresh(), callers)},
			{"no log", r.round(mute.fresh(), callers)},
			{"traced", r.round(traced.fresh(), callers)},
		},
		Figures: []Figure{
			{Name: "`do` with its log lines ÷ without, 64 callers, embedded", Unit: "/s", Goal: AtLeast(0.95), Of: Ratio("log", "no log", "rate")},
			{Name: "– their CPU", Unit: "µs", Of: Ratio("log", "no log", "cpu_us")},
			{Name: "`do` with tracing on, nothing sampled ÷ off, 64 callers, embedded", Unit: "/s", Goal: AtLeast(0.97), Of: Ratio("traced", "log", "rate")},
			{Name: "– their CPU", Unit: "µs", Of: Ratio("traced", "log", "cpu_us")},
		},
	}
}

// silent builds a gateway that logs nothing but errors. The program has no switch
// for that: this is the same code but for the level.
func (b *Bench) silent(t testing.TB) string {
	t.Helper()
	const level, silence = "Level: slog.LevelInfo", "Level: slog.LevelError"
	where, err := exec.Command("go", "list", "-f", "{{.Dir}}", "holdfast.dev/gateway/cmd/gateway").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(where)), "serve.go")
	raw, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(raw), level) != 1 {
		t.Fatalf("serve.go does not say %q once: the bench has to learn where the log's level is set now", level)
	}
	if b.Short {
		return b.Program // linking takes longer than all of the rest
	}
	changed := filepath.Join(b.Dir, "serve.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	list, program := filepath.Join(b.Dir, "overlay.json"), filepath.Join(b.Dir, "silent")
	for file, text := range map[string]string{changed: strings.Replace(string(raw), level, silence, 1), list: string(overlay)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.Command("go", "build", "-overlay", list, "-o", program, "holdfast.dev/gateway/cmd/gateway").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return program
}
