package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/sandbox"
)

// The clients in examples/ are played against the real gateway with the sandbox
// connector. Each is a program with the same arguments and exit codes; what it
// sent is recorded between the two. The one in TypeScript needs a compiler:
// docs_typescript_test.go, make examples.

// Exit codes of the clients.
const (
	clientDone, clientNotDone, clientUsage, clientUnknown, clientStillOpen = 0, 1, 2, 3, 4
)

func TestExamples(t *testing.T) {
	for name, command := range map[string]func(t *testing.T) []string{
		"curl":   func(*testing.T) []string { return []string{"sh", exampleFile("curl/do.sh")} },
		"python": func(*testing.T) []string { return []string{"python3", "-W", "error", exampleFile("python/do.py")} },
		"go": func(t *testing.T) []string {
			program := filepath.Join(t.TempDir(), "do")
			build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/go")
			build.Dir, build.Env = root, append(os.Environ(), "GOFLAGS="+buildFlags())
			out, err := build.CombinedOutput()
			require.NoError(t, err, "%s", out)
			return []string{program}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playExample(t, command(t))
		})
	}
}

func exampleFile(name string) string {
	path, err := filepath.Abs(filepath.Join(root, "examples", name))
	if err != nil {
		return name
	}
	return path
}

// stage is what one scenario happens on: a vendor, a connection to it, a relay
// between the client and the gateway, and the client.
type stage struct {
	t       *testing.T
	client  []string
	agent   *agent
	vendor  *sandbox.Vendor
	relay   *clientRelay
	seconds string // GATEWAY_PATIENCE
}

// playExample plays every scenario with one client, all at once: they wait as
// long as Retry-After says.
func playExample(t *testing.T, client []string) {
	app, _ := boot(t, embeddedConfig(t))
	for name, play := range map[string]func(s *stage){
		"done and replayed": (*stage).doneAndReplayed, "in flight": (*stage).inFlight,
		"key reused": (*stage).keyReused, "unknown": (*stage).unknown, "refused": (*stage).refused,
		"vendor asks to wait": (*stage).vendorAsksToWait, "not sent": (*stage).notSent,
		"lost answer": (*stage).lostAnswer, "half an answer": (*stage).halfAnAnswer,
		"somebody else's page": (*stage).somebodyElse, "out of patience": (*stage).outOfPatience,
		"bad key": (*stage).badKey, "usage": (*stage).usage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &stage{t: t, client: client, agent: newAgent(t, app.URL()), vendor: sandbox.New(sandbox.Options{}), seconds: "60"}
			t.Cleanup(s.vendor.Close)
			s.relay = newClientRelay(t, app.URL())
			play(s)
		})
	}
}

// connect makes the connection c to a vendor's address.
func (s *stage) connect(address string) {
	s.agent.must(201, "PUT", "/v1/connections/c", map[string]any{
		"connector": "sandbox@1", "base_url": address, "credentials": map[string]string{"token": "any"},
	})
}

// serve lets the vendor listen, behind what may come before it.
func (s *stage) serve(before func(w http.ResponseWriter, r *http.Request) bool) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before == nil || !before(w, r) {
			s.vendor.ServeHTTP(w, r)
		}
	}))
	s.t.Cleanup(server.Close)
	s.connect(server.URL)
}

func (s *stage) invoices(n int64) {
	s.t.Helper()
	require.Equal(s.t, n, s.vendor.Count().Committed, "invoices that the vendor made")
}

// ran is one run of the client.
type ran struct {
	code     int
	out, err string
	attempts []attempted
}

func (r ran) statuses() []int {
	var list []int
	for _, a := range r.attempts {
		list = append(list, a.status)
	}
	return list
}

const invoice = `{"customer":"acme","amount":12000,"currency":"EUR"%s}`

// run runs the client, and insists that all it sent was one and the same request.
func (s *stage) run(more string, ownKey ...string) ran {
	return s.start(more, ownKey...)()
}

func (s *stage) start(more string, ownKey ...string) (wait func() ran) {
	s.t.Helper()
	at, attempts := s.relay.newRun()
	args := append(append([]string{}, s.client[1:]...), "c", "create_invoice", fmt.Sprintf(invoice, more))
	cmd := exec.CommandContext(s.t.Context(), s.client[0], append(args, ownKey...)...)
	cmd.Env = append(os.Environ(), "GATEWAY_URL="+at, "GATEWAY_KEY="+s.agent.key, "GATEWAY_PATIENCE="+s.seconds)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(s.t, cmd.Start())
	return func() ran {
		_ = cmd.Wait() // the code says how
		r := ran{code: cmd.ProcessState.ExitCode(), out: out.String(), err: errs.String(), attempts: attempts()}
		for _, a := range r.attempts {
			require.Equal(s.t, r.attempts[0].body, a.body, "a repeat is the same request")
			require.Equal(s.t, r.attempts[0].key, a.key, "a repeat has the same key")
		}
		require.NotContains(s.t, r.out+r.err, s.agent.key)
		return r
	}
}

func (r ran) ended(t *testing.T, code int, word string) {
	t.Helper()
	require.Equal(t, code, r.code, "%v\n%s\n%s", r.statuses(), r.out, r.err)
	require.Contains(t, r.out+r.err, word)
}

func (s *stage) doneAndReplayed() {
	s.serve(nil)
	first, second := s.run(`,"memo":"5 \u20ac \"net\""`, "order-7"), s.run(`,"memo":"5 \u20ac \"net\""`, "order-7")
	first.ended(s.t, clientDone, `"replayed":false`)
	second.ended(s.t, clientDone, `"replayed":true`)
	require.Contains(s.t, first.out, `"source":"supplied"`)
	s.invoices(1)
}

func (s *stage) inFlight() {
	arrived := make(chan struct{}, 1)
	s.serve(func(http.ResponseWriter, *http.Request) bool { arrived <- struct{}{}; return false })
	first := s.start(`,"behave":"slow","delay_ms":1500`)
	<-arrived
	second := s.run(`,"behave":"slow","delay_ms":1500`)
	first().ended(s.t, clientDone, `"replayed":false`)
	second.ended(s.t, clientDone, `"replayed":true`)
	require.Contains(s.t, second.statuses(), http.StatusConflict)
	s.invoices(1)
}

func (s *stage) keyReused() {
	s.serve(nil)
	s.run("", "order-7").ended(s.t, clientDone, "succeeded")
	other := s.run(`,"memo":"other"`, "order-7")
	other.ended(s.t, clientNotDone, "key_reused")
	require.Equal(s.t, []int{422}, other.statuses(), "it does not help itself to another key")
	s.invoices(1)
}

func (s *stage) unknown() {
	s.serve(nil)
	r := s.run(`,"behave":"lose_answer"`)
	r.ended(s.t, clientUnknown, "outcome_unknown")
	require.Equal(s.t, []int{423}, r.statuses())
	s.invoices(1)
}

func (s *stage) refused() {
	s.serve(nil)
	r := s.run(`,"behave":"refuse"`)
	r.ended(s.t, clientNotDone, "vendor_refused")
	require.Equal(s.t, []int{424}, r.statuses())
	s.invoices(0)
}

func (s *stage) vendorAsksToWait() {
	var once sync.Once
	s.serve(func(w http.ResponseWriter, _ *http.Request) (handled bool) {
		once.Do(func() {
			handled = true
			w.Header().Set("Retry-After", "1")
			http.Error(w, "{}", http.StatusTooManyRequests)
		})
		return handled
	})
	started := time.Now()
	r := s.run("")
	r.ended(s.t, clientDone, `"replayed":false`)
	require.Equal(s.t, []int{429, 200}, r.statuses())
	require.GreaterOrEqual(s.t, time.Since(started), time.Second, "Retry-After was waited for")
	s.invoices(1)
}

// notSent: nobody listens at the vendor's address until the first 503 is out.
func (s *stage) notSent() {
	addr := freeAddr(s.t)
	s.connect("http://" + addr)
	s.relay.after = func(status int) {
		if status != http.StatusServiceUnavailable {
			return
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			s.t.Errorf("listen where the vendor is expected: %v", err)
			return
		}
		server := &http.Server{Handler: s.vendor} //nolint:gosec // a vendor of a test
		go func() { _ = server.Serve(l) }()
		s.t.Cleanup(func() { _ = server.Close() })
	}
	r := s.run("")
	r.ended(s.t, clientDone, `"replayed":false`)
	require.Equal(s.t, []int{503, 200}, r.statuses())
	s.invoices(1)
}

func (s *stage) lostAnswer() {
	s.serve(nil)
	s.relay.spoil = func(http.ResponseWriter, []byte) { panic(http.ErrAbortHandler) }
	r := s.run("")
	r.ended(s.t, clientDone, `"replayed":true`)
	require.Len(s.t, r.attempts, 2)
	s.invoices(1)
}

func (s *stage) halfAnAnswer() {
	s.serve(nil)
	s.relay.spoil = func(w http.ResponseWriter, body []byte) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	}
	s.run("").ended(s.t, clientDone, `"replayed":true`)
	s.invoices(1)
}

// somebodyElse: a success that is not the gateway's is none.
func (s *stage) somebodyElse() {
	s.serve(nil)
	s.relay.spoil = func(w http.ResponseWriter, _ []byte) { _, _ = io.WriteString(w, "<html>Please log in</html>") }
	s.run("").ended(s.t, clientDone, `"replayed":true`)
	s.invoices(1)
}

func (s *stage) outOfPatience() {
	s.serve(nil)
	s.seconds = "0"
	r := s.run(`,"behave":"rate_limit"`)
	r.ended(s.t, clientStillOpen, "429")
	require.Equal(s.t, []int{429}, r.statuses())
}

func (s *stage) badKey() {
	s.serve(nil)
	s.agent.key = "hf_nobody"
	s.run("").ended(s.t, clientNotDone, "unauthenticated")
}

func (s *stage) usage() {
	cmd := exec.CommandContext(s.t.Context(), s.client[0], append(append([]string{}, s.client[1:]...), "c")...)
	out, err := cmd.CombinedOutput()
	require.Error(s.t, err)
	require.Equal(s.t, clientUsage, cmd.ProcessState.ExitCode(), "%s", out)
	require.Contains(s.t, string(out), "IDEMPOTENCY-KEY")
}

// clientRelay stands between clients and the gateway. Each run of a client has a
// path of its own.
type clientRelay struct {
	server *httptest.Server
	after  func(status int)                         // before an answer is passed on
	spoil  func(w http.ResponseWriter, body []byte) // instead of the first answer

	mu   sync.Mutex
	runs [][]attempted
}

type attempted struct {
	body, key string
	status    int
}

func newClientRelay(t *testing.T, gateway string) *clientRelay {
	target, err := url.Parse(gateway)
	require.NoError(t, err)
	r := &clientRelay{}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) }, FlushInterval: -1}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.pass(proxy, w, req) }))
	t.Cleanup(r.server.Close)
	return r
}

func (r *clientRelay) newRun() (address string, attempts func() []attempted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.runs)
	r.runs = append(r.runs, nil)
	return fmt.Sprintf("%s/run-%d", r.server.URL, n), func() []attempted {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.runs[n]
	}
}

func (r *clientRelay) pass(to http.Handler, w http.ResponseWriter, req *http.Request) {
	var n int
	if _, err := fmt.Sscanf(req.URL.Path, "/run-%d/", &n); err != nil {
		http.Error(w, "no run", http.StatusTeapot)
		return
	}
	req.URL.Path = strings.TrimPrefix(req.URL.Path, fmt.Sprintf("/run-%d", n))
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	answer := httptest.NewRecorder()
	to.ServeHTTP(answer, req)
	r.mu.Lock()
	r.runs[n] = append(r.runs[n], attempted{body: string(body), key: req.Header.Get("Idempotency-Key"), status: answer.Code})
	first := len(r.runs[n]) == 1
	r.mu.Unlock()
	if r.after != nil {
		r.after(answer.Code)
	}
	if first && r.spoil != nil {
		r.spoil(w, answer.Body.Bytes())
		return
	}
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}
