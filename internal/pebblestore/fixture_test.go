package pebblestore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(runChild(os.Stdout, role, os.Getenv(childDir)))
	}
	goleak.VerifyTestMain(m)
}

// fakeClock is a time that a test sets.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// open opens a store that is closed with the test; its expirer never runs.
func open(t testing.TB, dir string, opts pebblestore.Options) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.OpenTicked(dir, opts, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var scope = ledger.ScopeOf("acme")

func key(id string) ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: id} }

func put(id, data string) ledger.Put { return ledger.Put{Key: key(id), Data: []byte(data)} }

// claim is a step that puts one value where none is, with a row that names it.
func claim(s *pebblestore.Store, id string) ledger.Step {
	return ledger.Step{
		Nonce: ledger.NewNonce(), At: s.Now(),
		Expect: []ledger.Expect{{Key: key(id)}},
		Put:    []ledger.Put{put(id, "value of "+id)},
		Rows:   [][]byte{[]byte(id)},
		Fetch:  []ledger.Fetch{{Key: key(id)}},
	}
}

func must(t testing.TB, s *pebblestore.Store, step ledger.Step) ledger.Result {
	t.Helper()
	if step.Nonce == (ledger.Nonce{}) {
		step.Nonce = ledger.NewNonce()
	}
	if step.At.IsZero() {
		step.At = s.Now()
	}
	res, err := s.Apply(context.Background(), scope, step)
	require.NoError(t, err)
	require.True(t, res.Applied)
	return res
}

func get(t testing.TB, s *pebblestore.Store, id string) (string, bool) {
	t.Helper()
	snap, err := s.Read(context.Background(), scope, ledger.Fetch{Key: key(id)})
	require.NoError(t, err)
	v, ok := snap.Get(key(id))
	return string(v.Data), ok
}

func allRows(t testing.TB, s *pebblestore.Store) []ledger.Row {
	t.Helper()
	rows, err := s.Rows(context.Background(), scope, ledger.RowRange{Limit: 1 << 20})
	require.NoError(t, err)
	return rows
}

// faults is a disk whose operations wait or fail as a test says.
type faults struct {
	vfs.FS
	mu    sync.Mutex
	match func(op errorfs.Op) bool
	err   error
	held  chan struct{}
}

func newFaults(fs vfs.FS) *faults {
	f := &faults{}
	f.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(f.maybe))
	return f
}

func (f *faults) maybe(op errorfs.Op) error {
	f.mu.Lock()
	held := f.held
	hit := f.match != nil && f.match(op)
	f.mu.Unlock()
	if !hit {
		return nil
	}
	if held != nil {
		<-held
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *faults) fail(match func(errorfs.Op) bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.match, f.err = match, err
}

// hold makes matching operations wait until they are released, and then succeed
// or fail.
func (f *faults) hold(match func(errorfs.Op) bool) (release func(err error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(chan struct{})
	f.match, f.held = match, held
	return func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held, f.err = nil, err
		if err == nil {
			f.match = nil
		}
		close(held)
	}
}

func logSync(op errorfs.Op) bool {
	sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	return sync && strings.HasSuffix(op.Path, ".log")
}

func logWrite(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log")
}

func tableWrite(op errorfs.Op) bool {
	return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".sst")
}

func tableRead(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst")
}

// The test binary, run again, is another gateway process.
const (
	childRole = "PEBBLESTORE_TEST_CHILD"
	childDir  = "PEBBLESTORE_TEST_DIR"
)

// child starts another process in a role and returns what it printed. With
// whileUp, its first line is awaited, whileUp is called, and it is then killed.
func child(t *testing.T, role, dir string, whileUp func()) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", childRole+"="+role, childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	stdin, err := cmd.StdinPipe() // held open: the child ends when it reads the end
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	if whileUp == nil {
		text, err := io.ReadAll(out)
		require.NoError(t, err)
		require.NoError(t, cmd.Wait())
		return string(text)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = stdin.Close()
	}()
	line := make([]byte, 1024)
	n, err := out.Read(line)
	require.NoError(t, err)
	whileUp()
	return string(line[:n])
}

// runChild is the other process.
func runChild(out io.Writer, role, dir string) int {
	switch role {
	case "full":
		childFull(out, dir)
		return 0
	case "full for tables":
		childFullForTables(out, dir)
		return 0
	case "panic":
		childPanic(out, dir)
		return 0
	}
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		say(out, "error:", err)
		return 0
	}
	switch role {
	case "open":
		say(out, "opened")
	case "write":
		_, err := s.Apply(context.Background(), scope, claim(s, "from the child"))
		say(out, "applied", err)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "fatal":
		childFatal(out, s)
	}
	return 0
}

// say tells the parent one line.
func say(out io.Writer, words ...any) { _, _ = fmt.Fprintln(out, words...) }

// logged collects the messages of a logger.
type logged struct {
	mu       sync.Mutex
	messages []string
	seen     chan string
}

func newLogged() (*logged, *slog.Logger) {
	l := &logged{seen: make(chan string, 1024)}
	return l, slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = append(l.messages, string(b))
	select {
	case l.seen <- string(b):
	default:
	}
	return len(b), nil
}

func (l *logged) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.messages, "")
}

// await waits for a message.
func (l *logged) await(t *testing.T, part string) {
	t.Helper()
	for {
		select {
		case m := <-l.seen:
			if strings.Contains(m, part) {
				return
			}
		case <-t.Context().Done():
			t.Fatal("never logged: " + part)
		}
	}
}
