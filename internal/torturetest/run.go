package torturetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"syscall"
	"time"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// Plan says what a run is made of.
type Plan struct {
	Program string // the gateway's binary, of Build
	Dir     string // an empty folder of the run's own
	Redis   bool   // two replicas on a Redis that appends and syncs; else one on the embedded store
	Seed    uint64
	Calls   int // of do, about
	Agents  int
}

// Report is what came of a run.
type Report struct {
	Calls      int            // of do that were made
	Faults     map[string]int // by kind; those of the vendor begin with "vendor: "
	Effects    int
	Actions    int // claims that were made
	Violations []string
	Took       time.Duration
}

// Total is the number of faults.
func (r *Report) Total() (n int) {
	for _, count := range r.Faults {
		n += count
	}
	return n
}

// Run plays a plan. An error means that the rig itself broke.
func Run(ctx context.Context, p Plan) (report Report, err error) {
	began := time.Now()
	s, err := set(ctx, p)
	if err != nil {
		return Report{}, err
	}
	defer s.close()
	r := rand.New(rand.NewPCG(p.Seed, 1))
	ops := makeOps(r, p.Calls/6+1)

	before, err := s.baseline(ctx)
	if err != nil {
		return Report{}, err
	}
	breaking, mend := context.WithCancel(ctx)
	broken := make(chan struct{})
	go func() { defer close(broken); s.chaos.run(breaking, r) }()
	s.crowd.play(ctx, p.Seed, ops, p.Calls, p.Agents)
	mend()
	<-broken
	if s.chaos.failed != nil {
		return Report{}, s.chaos.failed
	}
	s.vendor.calm.Store(true)
	a := account{ops: ops, notes: s.crowd.notes, barred: s.chaos.clocks.barred}
	if err := s.settle(ctx, &a); err != nil {
		return Report{}, err
	}
	a.effects, a.arrivals = s.vendor.ledger()
	report = Report{Calls: len(a.notes) + len(a.final), Faults: maps.Clone(s.chaos.faults), Effects: len(a.effects), Violations: a.violations()}
	for _, v := range a.arrivals {
		if v.whim != fine {
			report.Faults["vendor: "+string(v.whim)]++
		}
	}
	for _, row := range a.rows {
		if row.Event == "claimed" {
			report.Actions++
		}
	}
	report.Violations = append(report.Violations, s.chaos.clocks.wrong...)
	report.Violations = append(report.Violations, s.leaks(ctx, before)...)
	report.Took = time.Since(began)
	return report, nil
}

// scene is what a run needs, started.
type scene struct {
	plan     Plan
	vendor   *vendor
	gateways []*gateway
	chaos    *chaos
	crowd    *crowd
	closers  []func()
}

func (s *scene) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

func set(ctx context.Context, p Plan) (_ *scene, err error) {
	s := &scene{plan: p, vendor: newVendor(p.Seed), chaos: &chaos{faults: map[string]int{}}}
	s.closers = append(s.closers, s.vendor.close)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	connectors := filepath.Join(p.Dir, "connectors")
	if err := writeConnectors(connectors); err != nil {
		return nil, err
	}
	stores := []string{"embedded:" + filepath.Join(p.Dir, "data")}
	if p.Redis {
		if stores, err = s.startRedis(ctx); err != nil {
			return nil, err
		}
	}
	for i, store := range stores {
		clock, err := newClock(p.Dir, fmt.Sprintf("clock-%d", i))
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, clock.close)
		s.chaos.clocks.gateways = append(s.chaos.clocks.gateways, clock)
		g := &gateway{program: p.Program, store: store, connectors: connectors, clock: clock}
		if p.Redis {
			g.extra = []string{"--redis-ack=aof"}
		}
		if err := g.start(); err != nil {
			return nil, err
		}
		s.closers = append(s.closers, func() { g.end(syscall.SIGTERM) })
		s.gateways = append(s.gateways, g)
	}
	s.chaos.gateways = s.gateways
	if s.chaos.clocks.store = s.chaos.clocks.gateways[0].set; p.Redis {
		s.chaos.clocks.store = s.chaos.redis.Shift
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: p.Agents}}
	s.closers = append(s.closers, client.CloseIdleConnections)
	s.crowd = &crowd{gateways: s.gateways, client: client}
	return s, s.makeTenant(ctx)
}

// startRedis returns the store of each of two replicas, by a way of its own.
func (s *scene) startRedis(ctx context.Context) ([]string, error) {
	redis, err := redistest.LaunchShifted(filepath.Join(s.plan.Dir), redistest.Durable()...)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = redis.Kill() })
	if err := redisstore.Init(ctx, redisstore.Options{URL: redis.URL()}); err != nil {
		return nil, err
	}
	s.chaos.redis = redis
	var stores []string
	for range 2 {
		p, err := newProxy(redis.Addr())
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, p.close)
		s.chaos.proxies = append(s.chaos.proxies, p)
		stores = append(stores, "redis://"+p.addr())
	}
	return stores, nil
}

// makeTenant makes a tenant with a connection for each class of vendor.
func (s *scene) makeTenant(ctx context.Context) error {
	var made struct{ Key string }
	err := errors.Join(
		s.http(ctx, http.MethodPost, "/v1/tenants", adminKey, map[string]any{"id": "acme", "limits": map[string]any{
			"requests_per_second": 100_000, "writes_per_second": 100_000, "concurrent_calls": 10_000,
		}}, nil),
		s.http(ctx, http.MethodPost, "/v1/tenants/acme/keys", adminKey,
			map[string]any{"label": "agents", "scopes": []string{"do", "read", "resolve", "manage"}}, &made),
	)
	s.crowd.key = made.Key
	for _, class := range classes() {
		err = errors.Join(err, s.http(ctx, http.MethodPut, "/v1/connections/"+class, made.Key, map[string]any{
			"connector": "torture-" + class + "@1", "base_url": s.vendor.server.URL,
			"credentials": map[string]string{"token": "t"}, "auto_resend": class == "a",
		}, nil))
	}
	return err
}

// http asks the first gateway something other than do.
func (s *scene) http(ctx context.Context, method, path, key string, body, into any) error {
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.gateways[0].base()+path, payload)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.crowd.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, raw)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// settle waits, with everything mended, until nothing is in flight and what can be
// found out was, asks for every write once more, and reads the audit.
func (s *scene) settle(ctx context.Context, a *account) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := s.retry(ctx, func() error {
		n, err := s.inState(ctx, "in_flight")
		a.inFlight = n
		if err == nil && n > 0 {
			err = errors.New("writes are in flight")
		}
		return err
	}, 30*time.Second); err != nil && a.inFlight == 0 {
		return fmt.Errorf("wait until nothing is in flight: %w", err)
	}
	a.final = map[string]note{}
	for _, o := range a.ops {
		_ = s.retry(ctx, func() error {
			n := ask(ctx, s.crowd.client, s.gateways[0].base(), s.crowd.key, o.body(o.name), 10*time.Second)
			n.op = o.name
			a.final[o.name] = n
			if n.status == 0 || n.status == 409 || n.status == 429 || n.status >= 500 {
				return errors.New("not a last answer")
			}
			return nil
		}, 30*time.Second)
	}
	return s.readAudit(ctx, a)
}

// retry repeats what fails until it succeeds, within a time.
func (s *scene) retry(ctx context.Context, f func() error, within time.Duration) error {
	deadline := time.Now().Add(within)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
		wait(ctx.Done(), 100*time.Millisecond)
	}
}

func (s *scene) inState(ctx context.Context, state string) (int, error) {
	var page struct{ Data []json.RawMessage }
	err := s.http(ctx, http.MethodGet, "/v1/actions?limit=100&state="+state, s.crowd.key, nil, &page)
	return len(page.Data), err
}

func (s *scene) readAudit(ctx context.Context, a *account) error {
	cursor := ""
	for {
		var page struct {
			Data       []row
			NextCursor string `json:"next_cursor"`
		}
		path := "/v1/audit?limit=100&order=oldest"
		if cursor != "" {
			path += "&cursor=" + url.QueryEscape(cursor)
		}
		if err := s.http(ctx, http.MethodGet, path, s.crowd.key, nil, &page); err != nil {
			return fmt.Errorf("read audit: %w", err)
		}
		a.rows = append(a.rows, page.Data...)
		if cursor = page.NextCursor; cursor == "" {
			return nil
		}
	}
}

// What must come back to what it was at rest, and how far above that it may stay.
// Connections are kept for later; and so is what was compiled, and the coder that
// packs old rows of the embedded store, which alone takes 16 MB once.
const (
	goroutines, descriptors, memory = "go_goroutines", "process_open_fds", "go_memstats_heap_alloc_bytes"
	keptConnections                 = 40
	keptMemory                      = 32 << 20
)

// baseline reads what a gateway at rest has.
func (s *scene) baseline(ctx context.Context) (map[string]float64, error) {
	return s.gateways[0].atRest(ctx)
}

// leaks waits until every gateway is back at the baseline, nearly.
func (s *scene) leaks(ctx context.Context, before map[string]float64) (found []string) {
	s.crowd.client.CloseIdleConnections()
	for i, g := range s.gateways {
		var now map[string]float64
		err := s.retry(ctx, func() (err error) {
			if now, err = g.atRest(ctx); err != nil {
				return err
			}
			for name, kept := range map[string]float64{goroutines: keptConnections, descriptors: keptConnections, memory: keptMemory} {
				if now[name] > before[name]+kept {
					return fmt.Errorf("%s is above the baseline", name)
				}
			}
			return nil
		}, 15*time.Second)
		if err != nil {
			found = append(found, fmt.Sprintf("gateway %d at rest: %v, at first %v: %v", i, now, before, err))
		}
	}
	return found
}
