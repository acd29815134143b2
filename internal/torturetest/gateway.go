package torturetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdfast.dev/gateway/internal/torturetest/inside"
)

const (
	adminKey  = "torture-platform-admin-key-0123456789abcdef"
	secretKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	lease     = 2 * time.Second
)

// gateway is one replica: a real process that can be killed, stopped and started
// again.
type gateway struct {
	program, store, connectors string
	extra                      []string
	clock                      *clock

	mu      sync.Mutex
	cmd     *exec.Cmd
	gone    chan struct{}
	url     string
	admin   string
	log     strings.Builder
	stopped bool
}

// start runs the process and waits until it listens.
func (g *gateway) start() error {
	cmd := g.command(append([]string{"serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=" + g.store,
		"--connectors-dir=" + g.connectors, "--egress-allow=127.0.0.0/8", "--drain-timeout=2s",
		"--lease=" + lease.String(), "--store-timeout=700ms"}, g.extra...)...)
	out, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("start gateway: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start gateway: %w", err)
	}
	addrs := make(chan [2]string, 2)
	gone := make(chan struct{})
	go func() {
		g.read(out, addrs)
		_ = cmd.Wait()
		close(gone)
	}()
	var public, admin string
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for public == "" || admin == "" {
		select {
		case a := <-addrs:
			if a[0] == "api" {
				public = a[1]
			} else {
				admin = a[1]
			}
		case <-gone:
			return errors.New("start gateway: it ended: " + g.logged())
		case <-limit.C:
			_ = cmd.Process.Kill()
			return errors.New("start gateway: it does not listen: " + g.logged())
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cmd, g.gone, g.url, g.admin, g.stopped = cmd, gone, "http://"+public, "http://"+admin, false
	return nil
}

// command is the program with what every command of it needs.
func (g *gateway) command(args ...string) *exec.Cmd {
	cmd := exec.Command(g.program, args...)
	cmd.Env = append(os.Environ(), "GATEWAY_ADMIN_KEY="+adminKey, "GATEWAY_SECRET_KEY="+secretKey, inside.Clock+"="+g.clock.name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// acceptLoss accepts that writes since a time may be unknown to a store.
func (g *gateway) acceptLoss(store, from string) error {
	args := append([]string{"store", "accept-loss", "--from=" + from, "--store=" + store}, g.extra...)
	if out, err := g.command(args...).CombinedOutput(); err != nil {
		return fmt.Errorf("accept loss: %w: %s", err, out)
	}
	return nil
}

// ready asks the gateway whether it would claim, and if not, why.
func (g *gateway) ready() (bool, string) {
	g.mu.Lock()
	url := g.admin
	g.mu.Unlock()
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url + "/readyz")
	if err != nil {
		return false, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err.Error()
	}
	return resp.StatusCode == http.StatusOK, string(raw)
}

func (g *gateway) read(out io.Reader, addrs chan<- [2]string) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ Level, Msg, Listener, Addr string }
		_ = json.Unmarshal(lines.Bytes(), &line)
		if line.Msg == "listening" {
			addrs <- [2]string{line.Listener, line.Addr}
		}
		if line.Level == "ERROR" || line.Level == "" {
			g.mu.Lock()
			if g.log.Len() < 1<<20 {
				g.log.WriteString(lines.Text() + "\n")
			}
			g.mu.Unlock()
		}
	}
}

func (g *gateway) logged() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.log.String()
}

func (g *gateway) base() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.url
}

func (g *gateway) signal(s syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd != nil {
		_ = g.cmd.Process.Signal(s)
	}
}

// end ends the process and waits for it.
func (g *gateway) end(s syscall.Signal) {
	g.mu.Lock()
	cmd, gone := g.cmd, g.gone
	g.cmd = nil
	g.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGCONT)
	_ = cmd.Process.Signal(s)
	wait(gone, 15*time.Second)
	_ = cmd.Process.Kill()
	<-gone
}

// atRest collects garbage and reads what the gateway then holds.
func (g *gateway) atRest(ctx context.Context) (map[string]float64, error) {
	const collected = "go_memstats_last_gc_time_seconds"
	before, err := g.gauges(collected)
	if err != nil {
		return nil, err
	}
	g.signal(inside.Collect)
	for range 100 {
		now, err := g.gauges(collected, goroutines, descriptors, memory)
		if err != nil {
			return nil, err
		}
		if now[collected] != before[collected] {
			delete(now, collected)
			return now, nil
		}
		wait(ctx.Done(), 20*time.Millisecond)
	}
	return nil, errors.New("the gateway collects no garbage")
}

// gauges reads numbers from the metrics.
func (g *gateway) gauges(names ...string) (map[string]float64, error) {
	g.mu.Lock()
	url := g.admin
	g.mu.Unlock()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	out := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		for _, name := range names {
			if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
				out[name], _ = strconv.ParseFloat(value, 64)
			}
		}
	}
	return out, lines.Err()
}
