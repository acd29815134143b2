package benchtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// rig is what every contest over HTTP has: a vendor and a load generator.
type rig struct {
	bench  *Bench
	vendor *process
	load   *process
	serial int64 // of the next write: none is made twice unless it is meant
	close  []func()
}

func newRig(t testing.TB, b *Bench) *rig {
	t.Helper()
	r := &rig{bench: b, vendor: spawn(t, roleVendor, "", light), load: spawn(t, roleLoad, "", light)}
	r.close = []func(){r.vendor.close, r.load.close}
	return r
}

// end ends what was started, last things first.
func (r *rig) end() {
	for _, f := range slices.Backward(r.close) {
		f()
	}
}

// document is what goes to the vendor: JSON of 300 bytes, another one each time.
func document() string {
	head := `{"serial":"` + Hole + `","customer":"cus_N9f2c81e7","currency":"eur","amount":11725,"description":"`
	const tail = `"}`
	return head + strings.Repeat("y", 300-len(head)-len(tail)) + tail
}

// doBody is the request of do that makes the gateway send the same document.
func doBody() string {
	return `{"connection":"c","action":"create","body":{"collection":"things","document":` + document() + `}}`
}

// side is how a contestant is asked.
type side struct {
	addr, path, key, body, expect string
	span                          int64 // so many writes over and over; 0: each a new one
	pids                          []int
}

func (g *gateway) fresh() side {
	return side{addr: g.addr, path: "/v1/do", key: g.key, body: doBody(), expect: "Idempotent-Replayed: false", pids: []int{g.pid()}}
}

// repeats asks for writes that were all made before; see fill.
func (r *rig) repeats(g *gateway) side {
	s := g.fresh()
	s.expect, s.span = "Idempotent-Replayed: true", r.finished()
	return s
}

func proxied(p *process) side {
	return side{addr: p.addr, path: "/things", body: document(), pids: []int{p.pid()}}
}

func echoed(p *process) side {
	return side{addr: p.addr, path: "/v1/do", body: doBody(), pids: []int{p.pid()}}
}

// finished is how many writes a replay may be of.
func (r *rig) finished() int64 {
	if r.bench.Short {
		return 64
	}
	return 4096
}

// fill makes the writes that are replayed.
func (r *rig) fill(t testing.TB, g *gateway) {
	t.Helper()
	s := g.fresh()
	plan := Plan{Addr: s.addr, Path: s.path, Key: s.key, Body: s.body, Expect: s.expect, Callers: 64, Count: r.finished()}
	if _, err := r.load.generate(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
}

// round makes a contestant of a side.
func (r *rig) round(s side, callers int) func(context.Context) (Sample, error) {
	return func(ctx context.Context) (Sample, error) {
		plan := Plan{
			Addr: s.addr, Path: s.path, Key: s.key, Body: s.body, Expect: s.expect, Span: s.span, PIDs: s.pids,
			Callers: callers, WarmMS: (r.bench.Time / 5).Milliseconds(), TimeMS: r.bench.Time.Milliseconds(),
		}
		if s.span == 0 {
			plan.First = r.serial
		}
		out, err := r.load.generate(ctx, plan)
		if err != nil {
			return nil, err
		}
		r.serial += out.Sent + int64(callers)
		return out.sample(), nil
	}
}

func httpContests(short bool) []Entry {
	crowds := []int{64, 256}
	if short {
		crowds = []int{8}
	}
	var all []Entry
	for _, callers := range crowds {
		all = append(all, Entry{fmt.Sprintf("do of %d callers", callers), func(t testing.TB, b *Bench) Contest {
			return doContest(t, b, callers)
		}})
	}
	for _, callers := range crowds {
		all = append(all, Entry{fmt.Sprintf("replay of %d callers", callers), func(t testing.TB, b *Bench) Contest {
			return replayContest(t, b, callers)
		}})
	}
	return append(all, Entry{"one lone do", loneContest}, Entry{"telemetry", telemetryContest})
}

// httpNotes say what the figures over HTTP are counted with.
func httpNotes() []string {
	return []string{
		"What bounds one tenant is switched off (requests and writes per second, calls at once, turns): " + strings.Join(unlimited(), " ") + ".",
		"Load generator and vendor are raw sockets with little between them, one thread of Go each. They share the processors with what is measured.",
		"The embedded store and Redis are on the same disk; Redis appends and syncs before it answers (appendfsync always). The log goes to a file, two lines a request.",
		"The program has no switch for its log: the gateway without one is the same code built with another level, and still gathers what it would have said.",
	}
}

// doContest: a new write by each request, on both stores, against a proxy that
// sends the same document to the same vendor and promises nothing.
func doContest(t testing.TB, b *Bench, callers int) Contest {
	r := newRig(t, b)
	proxy := spawn(t, roleProxy, r.vendor.addr)
	local := embedded(t, b.Program, r.vendor.addr)
	remote, redis := onRedis(t, b, r.vendor.addr)
	floor := spawnProxyFloor(t, b, r.vendor.addr)
	r.close = append(r.close, proxy.close, local.close, func() { _ = redis.Kill() }, remote.close, floor.close)
	goal := AtLeast(0.9)
	if callers > 64 {
		goal = AtLeast(1)
	}
	name := fmt.Sprintf("`do` ÷ ReverseProxy, %d callers, ", callers)
	return Contest{
		Name: fmt.Sprintf("do of %d callers", callers), Close: r.end,
		Contestants: []Contestant{
			{Name: "embedded", Round: r.round(local.fresh(), callers)},
			{"proxy", r.round(proxied(proxy), callers)},
			{"redis", r.round(remote.fresh(), callers)},
			{"floor", r.round(proxied(floor), callers)},
		},
		Figures: []Figure{
			{Name: name + "embedded", Unit: "/s", Goal: goal, Of: Ratio("embedded", "proxy", "rate")},
			{Name: name + "Redis", Unit: "/s", Goal: goal, Of: Ratio("redis", "proxy", "rate")},
			{Name: fmt.Sprintf("the gateway's CPU per `do` ÷ the proxy's, %d callers, embedded", callers), Unit: "µs", Goal: AtMost(1.15), Of: Ratio("embedded", "proxy", "cpu_us")},
			{Name: fmt.Sprintf("– the floor: that proxy with two synced frames on a raw log ÷ itself, %d callers", callers), Unit: "/s", Of: Ratio("floor", "proxy", "rate")},
			{Name: fmt.Sprintf("– its CPU, %d callers", callers), Unit: "µs", Of: Ratio("floor", "proxy", "cpu_us")},
			{Name: fmt.Sprintf("p99 of `do` ÷ the proxy's, %d callers, embedded", callers), Unit: "ms", Of: Ratio("embedded", "proxy", "p99_ms")},
			{Name: fmt.Sprintf("p99 of `do` ÷ the proxy's, %d callers, Redis", callers), Unit: "ms", Of: Ratio("redis", "proxy", "p99_ms")},
		},
	}
}

// replayContest: the answer to a finished write, with its audit row, against a
// handler that reads the same request and answers it.
func replayContest(t testing.TB, b *Bench, callers int) Contest {
	r := newRig(t, b)
	bare := spawn(t, roleEcho, "")
	floor := spawnEchoFloor(t)
	local := embedded(t, b.Program, r.vendor.addr)
	remote, redis := onRedis(t, b, r.vendor.addr)
	r.close = append(r.close, bare.close, floor.close, local.close, func() { _ = redis.Kill() }, remote.close)
	r.fill(t, local)
	r.fill(t, remote)
	here, there := AtLeast(0.8), AtLeast(0.75)
	if callers > 64 {
		here, there = AtLeast(1), AtLeast(1)
	}
	name := fmt.Sprintf("replay ÷ a JSON echo, %d callers, ", callers)
	return Contest{
		Name: fmt.Sprintf("replay of %d callers", callers), Close: r.end,
		Contestants: []Contestant{
			{Name: "embedded", Round: r.round(r.repeats(local), callers)},
			{"echo", r.round(echoed(bare), callers)},
			{"redis", r.round(r.repeats(remote), callers)},
			{"floor", r.round(echoed(floor), callers)},
		},
		Figures: []Figure{
			{Name: name + "embedded", Unit: "/s", Goal: here, Of: Ratio("embedded", "echo", "rate")},
			{Name: name + "Redis", Unit: "/s", Goal: there, Of: Ratio("redis", "echo", "rate")},
			{Name: fmt.Sprintf("– the floor: that echo with one synced frame on a raw log ÷ itself, %d callers", callers), Unit: "/s", Of: Ratio("floor", "echo", "rate")},
		},
	}
}

// loneContest: what one caller alone waits longer for a write that is on the disk
// twice, before it is sent and before it is answered.
func loneContest(t testing.TB, b *Bench) Contest {
	r := newRig(t, b)
	proxy := spawn(t, roleProxy, r.vendor.addr)
	local := embedded(t, b.Program, r.vendor.addr)
	floor := spawnProxyFloor(t, b, r.vendor.addr)
	r.close = append(r.close, proxy.close, local.close, floor.close)
	longer := func(who string) func(Round) (float64, float64) {
		return func(r Round) (float64, float64) {
			return r[who]["p50_ms"] - r["proxy"]["p50_ms"], r["fdatasync"]["p50_ms"]
		}
	}
	syncs := func(context.Context) (Sample, error) {
		seconds, err := Syncs(b.Dir, max(20, int(b.Time/(5*time.Millisecond))))
		return Sample{"p50_ms": Median(seconds) * 1e3}, err
	}
	return Contest{
		Name: "one lone do", Close: r.end,
		Contestants: []Contestant{
			{Name: "embedded", Round: r.round(local.fresh(), 1)}, {"proxy", r.round(proxied(proxy), 1)}, {"fdatasync", syncs},
			{"floor", r.round(proxied(floor), 1)},
		},
		Figures: []Figure{
			{Name: "what one lone `do` takes longer than the proxy ÷ an fdatasync, medians, embedded", Unit: "ms", Goal: AtMost(2.3), Of: longer("embedded")},
			{Name: "– the floor: the proxy with two synced frames on a raw log", Unit: "ms", Of: longer("floor")},
		},
	}
}
