package redisstore_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
)

// Many callers share connections to a server that fails in the middle of what it
// says. Each gets the answer to its own step or a doubt, the server never gets a
// step twice, and when it is well again all are served.
func TestNobodyGetsTheAnswerOfAnother(t *testing.T) {
	for name, fault := range map[string]func(reply string) (say string, ends bool){
		"none":                       says("", false),
		"none, and an end":           says("", true),
		"half":                       says("$17\r\nA0123", true),
		"half, then the next":        says("$17\r\nA0123", false),
		"garbage":                    says("garbage\r\n", false),
		"nothing at all":             says("$-1\r\n", false),
		"moved":                      says("-MOVED 1 127.0.0.1:1\r\n", false),
		"ask":                        says("-ASK 1 127.0.0.1:1\r\n", false),
		"try again":                  says("-TRYAGAIN Multiple keys request during rehashing of slot\r\n", false),
		"loading":                    says("-LOADING Redis is loading the dataset in memory\r\n", false),
		"read only":                  says("-READONLY You can't write against a read only replica.\r\n", false),
		"twice":                      func(reply string) (string, bool) { return reply + reply, false },
		"one of nobody in front":     func(reply string) (string, bool) { return foreign + reply, false },
		"one of nobody, and no more": says(foreign, true),
	} {
		for _, mode := range []string{"", "?mode=cluster"} {
			t.Run(name+mode, func(t *testing.T) {
				t.Parallel()
				server := newTeller(t, fault)
				s := open(t, redisstore.Options{URL: server.url + mode, Pipeline: true, Timeout: impatient, Ack: "none"})
				server.ill.Store(true)
				var callers sync.WaitGroup
				for range 100 {
					callers.Go(func() {
						for range 10 {
							server.ask(t, s)
						}
					})
				}
				callers.Wait()
				server.ill.Store(false)
				require.Eventually(t, func() bool { return server.ask(t, s) }, waitLimit, tick)
				require.True(t, server.together.Load(), "no commands shared a round trip")
				require.Empty(t, server.repeated())
			})
		}
	}
}

// foreign is an answer that no step of these tests has.
const foreign = "$17\r\nA\x00\x00\x00\x00\x00\x00\x00\x01foreign!\r\n"

func says(what string, ends bool) func(string) (string, bool) {
	return func(string) (string, bool) { return what, ends }
}

// teller is a server that tells each step, as its counter, the beginning of its own
// nonce. While it is ill it fails at each twentieth.
type teller struct {
	t        *testing.T
	url      string
	fault    func(string) (string, bool)
	ill      atomic.Bool
	steps    atomic.Int64
	together atomic.Bool // several commands have come at once

	mu  sync.Mutex
	run map[string]int // by nonce, but for those that were refused
}

func newTeller(t *testing.T, fault func(string) (string, bool)) *teller {
	t.Helper()
	s := &teller{t: t, fault: fault, run: map[string]int{}}
	s.url = serving(t, s.serve)
	return s
}

func (s *teller) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		words, err := readWords(in)
		if err != nil {
			return
		}
		if in.Buffered() > 0 {
			s.together.Store(true)
		}
		if strings.EqualFold(words[0], "cluster") {
			_, _ = fmt.Fprintf(conn, "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%s\r\n", portOf(s.t, s.url))
			continue
		}
		if !strings.EqualFold(words[0], "evalsha") || !strings.Contains(words[4], "#n") {
			_, _ = io.WriteString(conn, "-ERR not a step\r\n")
			continue
		}
		nonce := words[4][len(words[4])-16:]
		say, ends := told(nonce), false
		if s.ill.Load() && s.steps.Add(1)%20 == 0 {
			say, ends = s.fault(say)
		}
		if !strings.HasPrefix(say, "-") {
			s.mu.Lock()
			s.run[nonce]++
			s.mu.Unlock()
		}
		if _, err := io.WriteString(conn, say); err != nil || ends {
			return
		}
	}
}

// told is the answer to the step with a nonce: applied, now, and one counter.
func told(nonce string) string {
	text := "A" + string(binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))) + nonce[:8] + nonce[8:]
	return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
}

// ask makes a step and says whether it was answered.
func (s *teller) ask(t *testing.T, store ledger.Store) bool {
	step := claim(store, "x")
	res, err := store.Apply(t.Context(), ledger.Platform, step)
	if err != nil {
		doubt(t, err)
		return false
	}
	if !res.Applied || len(res.Counters) != 1 || uint64(res.Counters[0]) != binary.BigEndian.Uint64(step.Nonce[:8]) {
		t.Errorf("an answer of another: %v", res)
	}
	return true
}

func (s *teller) repeated() (nonces []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for nonce, times := range s.run {
		if times > 1 {
			nonces = append(nonces, fmt.Sprintf("%x", nonce))
		}
	}
	return nonces
}
