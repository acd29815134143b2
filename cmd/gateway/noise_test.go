package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/vendortest"
)

// noiseEnv makes this test binary be a tenant that asks for all it can, and its
// vendor, in a process of its own: what it costs to ask is not to be measured.
const noiseEnv = "HOLDFAST_TEST_NOISE"

// noise is what the noisy process is told first.
type noise struct {
	Base, Key string
	// Replays makes every second request a repeat of one that was answered.
	Replays bool
	// Waits makes all callers ask for the same write and wait for its answer, which
	// its vendor takes a while for, then for the next one.
	Waits   bool
	Callers int
}

// noisy is the process of a noisy tenant.
type noisy struct {
	b      *testing.B
	in     io.WriteCloser
	out    *bufio.Scanner
	vendor string // its address
}

func spawnNoise(b *testing.B) *noisy {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), noiseEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	n := &noisy{b: b, in: in, out: bufio.NewScanner(out)}
	b.Cleanup(func() {
		_ = in.Close() // ends it
		_ = cmd.Wait()
	})
	n.vendor = n.line()
	return n
}

func (n *noisy) line() string {
	require.True(n.b, n.out.Scan(), "the noisy process has ended")
	return n.out.Text()
}

func (n *noisy) say(what string) {
	_, err := io.WriteString(n.in, what+"\n")
	require.NoError(n.b, err)
}

// stop ends a round of noise and tells how many answers of each status it got.
func (n *noisy) stop() map[string]int64 {
	n.say("stop")
	counts := map[string]int64{}
	require.NoError(n.b, json.Unmarshal([]byte(n.line()), &counts))
	return counts
}

// makeNoise is the noisy process: it prints its vendor's address, reads what it
// is to do, and makes noise from "go" to "stop".
func makeNoise(in io.Reader, out io.Writer) {
	vendor, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var slow atomic.Bool
	go func() {
		_ = http.Serve(vendor, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if slow.Load() {
				<-time.After(slowVendor)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"arrival":1}`)
		}))
	}()
	fmt.Fprintf(out, "http://%s\n", vendor.Addr())
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return
	}
	var what noise
	if err := json.Unmarshal(lines.Bytes(), &what); err != nil {
		panic(err)
	}
	slow.Store(what.Waits)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: what.Callers}}
	var serial atomic.Int64
	for lines.Scan() { // "go"
		ctx, stop := context.WithCancel(context.Background())
		var mu sync.Mutex
		counts := map[string]int64{}
		var callers sync.WaitGroup
		for range what.Callers {
			callers.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					number := serial.Add(1)
					switch {
					case what.Replays && n%2 == 0:
						number = 0
					case what.Waits:
						number /= int64(what.Callers)
					}
					status := what.ask(ctx, client, number)
					mu.Lock()
					counts[status]++
					mu.Unlock()
				}
			})
		}
		lines.Scan() // "stop"
		stop()
		callers.Wait()
		if err := json.NewEncoder(out).Encode(counts); err != nil {
			return
		}
	}
}

func (n noise) ask(ctx context.Context, client *http.Client, number int64) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.Base+"/v1/do", strings.NewReader(doBody("c", "create", numbered(int(number)))))
	if err != nil {
		return "bad"
	}
	req.Header.Set("Authorization", "Bearer "+n.Key)
	req.Header.Set("Content-Type", "application/json")
	if n.Waits {
		req.Header.Set("Prefer", "wait=5")
	}
	resp, err := client.Do(req)
	if err != nil {
		return "cut"
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return fmt.Sprint(resp.StatusCode)
}

// BenchmarkNoisyNeighbour measures one tenant's paced writes by turns alone and
// beside another that asks with 64 callers at once (2,000 where they wait for one
// answer), each as fast as it is answered, for far more than it may. It reports the 99th percentiles and their
// quotient, which is to stay below 2. Gateway, noise and measurement are three
// processes.
func BenchmarkNoisyNeighbour(b *testing.B) {
	for _, bm := range []struct {
		name   string
		limits limits.Policy
		noise  noise
	}{
		{name: "refused", limits: limits.Policy{RequestsPerSecond: 100, WritesPerSecond: 50, ConcurrentCalls: 8}, noise: noise{Callers: 64}},
		{name: "refused-and-replayed", limits: limits.Policy{RequestsPerSecond: 100, WritesPerSecond: 50, ConcurrentCalls: 8}, noise: noise{Callers: 64, Replays: true}},
		{name: "default-limits", limits: defaultLimits(), noise: noise{Callers: 64, Replays: true}},
		{name: "default-limits-waiting", limits: defaultLimits(), noise: noise{Callers: 2000, Waits: true}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			cfg := testConfig(b)
			cfg.Store = embeddedPrefix + filepath.Join(b.TempDir(), "data")
			gateway := spawn(b, cfg, limitFlags(bm.limits)...)
			vendor := vendortest.New(b, instant)
			quiet, other := newAgent(b, gateway.url()), newAgent(b, gateway.url())
			crowd := spawnNoise(b)
			quiet.connect("c", "probe@1", vendor.URL())
			other.connect("c", "probe@1", crowd.vendor)
			what := bm.noise
			what.Base, what.Key = gateway.url(), other.key
			told, err := json.Marshal(what)
			require.NoError(b, err)
			crowd.say(string(told))
			writes := &pacedWrites{agent: quiet}
			writes.measure(warmUp)
			var alone, beside []time.Duration
			counts := map[string]int64{}
			for b.Loop() {
				// By turns: other work on the machine meets both alike.
				alone = append(alone, writes.measure(turn)...)
				crowd.say("go")
				writes.measure(warmUp)
				beside = append(beside, writes.measure(turn)...)
				for status, n := range crowd.stop() {
					counts[status] += n
				}
			}
			for unit, part := range map[string]int{"p50": 50, "p99": 99} {
				quiet, loud := percentile(alone, part), percentile(beside, part)
				b.ReportMetric(milliseconds(quiet), "alone-"+unit+"-ms")
				b.ReportMetric(milliseconds(loud), "beside-"+unit+"-ms")
				b.ReportMetric(float64(loud)/float64(quiet), unit+"-quotient")
			}
			for status, n := range counts {
				b.ReportMetric(float64(n)/float64(b.N), "noise-"+status+"/op")
			}
		})
	}
}

const (
	paceEvery = time.Second / 50 // within the quiet tenant's own limits
	turn      = 150              // writes measured at a stretch
	warmUp    = 15

	slowVendor = 300 * time.Millisecond // while many wait for its answer
)

// pacedWrites are those of the quiet tenant.
type pacedWrites struct {
	agent *agent
	n     int
}

// measure makes new writes one after the other at a steady pace and says how
// long each took.
func (p *pacedWrites) measure(count int) []time.Duration {
	times := make([]time.Duration, 0, count)
	tick := time.NewTicker(paceEvery)
	defer tick.Stop()
	for range count {
		<-tick.C
		p.n++
		began := time.Now()
		p.agent.do("c", "create", numbered(p.n)).is(200, "succeeded")
		times = append(times, time.Since(began))
	}
	return times
}

func percentile(times []time.Duration, part int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)-1)*part/100]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func limitFlags(p limits.Policy) []string {
	return []string{
		fmt.Sprintf("--tenant-requests-per-second=%d", p.RequestsPerSecond),
		fmt.Sprintf("--tenant-writes-per-second=%d", p.WritesPerSecond),
		fmt.Sprintf("--tenant-concurrent-calls=%d", p.ConcurrentCalls),
		fmt.Sprintf("--tenant-new-identities=%d", p.NewWrites),
	}
}
