package redisstore

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redistest"
)

// rounds is a server of a script: it shows the test what it is asked and says
// what the test tells it.
type rounds struct {
	url   string
	asked chan string // "evalsha", "eval" or "wait"
	reply chan string
	conns chan struct{} // a value for each connection
}

func newRounds(t *testing.T) *rounds {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &rounds{url: l.Addr().String(), asked: make(chan string, 64), reply: make(chan string, 64), conns: make(chan struct{}, 64)}
	var running sync.WaitGroup
	done := make(chan struct{})
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.conns <- struct{}{}
			running.Go(func() { r.serve(conn, done) })
			running.Go(func() { <-done; _ = conn.Close() })
		}
	})
	t.Cleanup(func() {
		close(done)
		_ = l.Close()
		running.Wait()
	})
	return r
}

func (r *rounds) serve(conn net.Conn, done <-chan struct{}) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	for {
		name, err := commandName(in)
		if err != nil {
			return
		}
		say := "-ERR unknown command\r\n"
		if name == "wait" || strings.HasPrefix(name, "eval") {
			r.asked <- name
			select {
			case say = <-r.reply:
			case <-done:
				return
			}
		}
		if _, err := io.WriteString(conn, say); err != nil || !strings.HasSuffix(say, "\r\n") {
			return
		}
	}
}

func commandName(in *bufio.Reader) (string, error) {
	var parts, size int
	if _, err := fmt.Fscanf(in, "*%d\r\n", &parts); err != nil {
		return "", err
	}
	name := ""
	for i := range parts {
		if _, err := fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return "", err
		}
		buf := make([]byte, size+2)
		if _, err := io.ReadFull(in, buf); err != nil {
			return "", err
		}
		if i == 0 {
			name = strings.ToLower(string(buf[:size]))
		}
	}
	return name, nil
}

func (r *rounds) say(replies ...string) {
	for _, s := range replies {
		r.reply <- s
	}
}

func (r *rounds) hears(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-r.asked:
			require.Equal(t, w, got)
		case <-time.After(10 * time.Second):
			t.Fatalf("not asked: %s", w)
		}
	}
}

func newTestAcknowledger(t *testing.T, r *rounds, timeout time.Duration) *acknowledger {
	t.Helper()
	a := &acknowledger{
		script: newScripts().ack, timeout: timeout,
		connect: func() *redis.Client {
			o := Options{Timeout: timeout}.common().Simple()
			o.Addr, o.PoolSize = r.url, 1
			return redis.NewClient(o)
		},
	}
	t.Cleanup(a.close)
	return a
}

const (
	yes  = "$1\r\n1\r\n"
	no   = "$1\r\n0\r\n"
	one  = ":1\r\n"
	zero = ":0\r\n"
)

// A step that comes while a round is running is not part of it: its mark would
// stand in front of it.
func TestStepsCountInTheNextRoundOnly(t *testing.T) {
	r := newRounds(t)
	a := newTestAcknowledger(t, r, 10*time.Second)
	ks := keysOf(ledger.Platform)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- a.confirm(t.Context(), ks, ledger.Nonce{1}, 1) }()
	r.hears(t, "evalsha")
	go func() { second <- a.confirm(t.Context(), ks, ledger.Nonce{2}, 1) }()
	require.Eventually(t, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.waiting) == 1 }, 10*time.Second, time.Millisecond)
	r.say(yes, one)
	require.NoError(t, <-first)
	r.hears(t, "wait", "evalsha")
	select {
	case <-second:
		t.Fatal("counted in a round begun before it")
	default:
	}
	r.say(yes, zero)
	err := <-second
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.ErrorContains(t, err, "0 of 1")
}

// Only a clear yes of script and WAIT on one connection counts, and whatever
// else ends the connection.
func TestAnythingButAClearYesIsUnavailable(t *testing.T) {
	for name, replies := range map[string][]string{
		"too few":                {yes, zero},
		"not held":               {no, one},
		"held, and more":         {"$2\r\n11\r\n", one},
		"nothing":                {"$0\r\n\r\n", one},
		"nil":                    {"$-1\r\n", one},
		"a number":               {":1\r\n", one},
		"a strange byte":         {"$1\r\nx\r\n", one},
		"no count":               {yes, "$-1\r\n"},
		"a word for a count":     {yes, "+OK\r\n"},
		"a list for a count":     {yes, "*1\r\n:1\r\n"},
		"a replica by now":       {yes, "-ERR WAIT cannot be used with replica instances.\r\n"},
		"demoted meanwhile":      {yes, "-UNBLOCKED force unblock from blocking operation\r\n"},
		"read only":              {"-READONLY You can't write against a read only replica.\r\n", one},
		"moved":                  {"-MOVED 1 127.0.0.1:1\r\n", one},
		"no permission":          {yes, "-NOPERM no permission\r\n"},
		"full":                   {"-OOM command not allowed\r\n", one},
		"the script stays away":  {"-NOSCRIPT none\r\n", one, "-NOSCRIPT none\r\n", one},
		"half an answer":         {yes, ":"},
		"half a script's answer": {"$1\r\n1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRounds(t)
			a := newTestAcknowledger(t, r, 2*time.Second)
			r.say(replies...)
			require.ErrorIs(t, a.confirm(t.Context(), keysOf(ledger.Platform), ledger.Nonce{1}, 1), ledger.ErrUnavailable)
			for len(r.reply) > 0 {
				<-r.reply
			}
			first := len(r.conns)
			r.say(yes, one, yes, one)
			require.NoError(t, a.confirm(t.Context(), keysOf(ledger.Platform), ledger.Nonce{1}, 1))
			require.Greater(t, len(r.conns), first, "a connection in doubt is not used again")
			second := len(r.conns)
			require.NoError(t, a.confirm(t.Context(), keysOf(ledger.Platform), ledger.Nonce{1}, 1))
			require.Len(t, r.conns, second, "a good one is")
		})
	}
}

func TestAcknowledgerSendsAScriptThatIsNotKnown(t *testing.T) {
	r := newRounds(t)
	a := newTestAcknowledger(t, r, 10*time.Second)
	r.say("-NOSCRIPT none\r\n", one, yes, one)
	require.NoError(t, a.confirm(t.Context(), keysOf(ledger.Platform), ledger.Nonce{1}, 1))
	r.hears(t, "evalsha", "wait", "eval", "wait")
}

// A caller goes when its time is up; the round goes on, and close waits for it.
func TestCallersDoNotWaitLongerThanTheyHave(t *testing.T) {
	r := newRounds(t)
	a := newTestAcknowledger(t, r, 300*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.confirm(ctx, keysOf(ledger.Platform), ledger.Nonce{1}, 1) }()
	r.hears(t, "evalsha") // and is never answered
	cancel()
	require.ErrorIs(t, <-done, ledger.ErrUnavailable)
	a.close()
	require.Nil(t, a.client)
}

// Verdicts are each step's own.
func TestOneRoundManyVerdicts(t *testing.T) {
	r := newRounds(t)
	a := newTestAcknowledger(t, r, 10*time.Second)
	a.running = true // so that all three meet in one round
	ks := keysOf(ledger.Platform)
	results := make(chan error, 3)
	for i, need := range []int{1, 2, 1} {
		go func() { results <- a.confirm(t.Context(), ks, ledger.Nonce{byte(i + 1)}, need) }()
		require.Eventually(t, func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.waiting) == i+1 }, 10*time.Second, time.Millisecond)
	}
	r.say("$3\r\n110\r\n", one)
	a.rounds.Go(a.run)
	var good, few, lost int
	for range 3 {
		switch err := <-results; {
		case err == nil:
			good++
		case strings.Contains(err.Error(), "1 of 2"):
			few++
		case strings.Contains(err.Error(), "another server"):
			lost++
		}
	}
	require.Equal(t, []int{1, 1, 1}, []int{good, few, lost})
}

// A server that was told never to apply the step does not hold it.
func TestVoidedStepsAreNotHeld(t *testing.T) {
	s, err := Open(t.Context(), Options{URL: redistest.Start(t).URL(), Ack: "none"})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	lost := ledger.NewNonce()
	_, err = s.Apply(t.Context(), ledger.Platform, ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Void: []ledger.Nonce{lost}})
	require.NoError(t, err)
	node, err := s.masterOf(t.Context(), keysOf(ledger.Platform))
	require.NoError(t, err)
	err = s.acks.of(node).confirm(t.Context(), keysOf(ledger.Platform), lost, 0)
	require.ErrorIs(t, err, ledger.ErrUnavailable)
}
