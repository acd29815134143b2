package torturetest

import (
	"bufio"
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
	args := append([]string{"serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=" + g.store,
		"--connectors-dir=" + g.connectors, "--egress-allow=127.0.0.0/8", "--drain-timeout=2s",
		"--lease=" + lease.String(), "--store-timeout=700ms"}, g.extra...)
	cmd := exec.Command(g.program, args...)
	cmd.Env = append(os.Environ(), "GATEWAY_ADMIN_KEY="+adminKey, "GATEWAY_SECRET_KEY="+secretKey)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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
