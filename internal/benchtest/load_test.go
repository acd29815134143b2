package benchtest_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/benchtest"
)

// plan asks a server of the test's own; what it was sent is collected.
func plan(t *testing.T, answer http.HandlerFunc) (benchtest.Plan, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		mu.Lock()
		sent = append(sent, r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(raw))
		mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	p := benchtest.Plan{
		Addr: strings.TrimPrefix(server.URL, "http://"), Path: "/p", Key: "k", Callers: 3,
		Body: `{"n":"` + benchtest.Hole + `","again":"` + benchtest.Hole + `"}`,
	}
	return p, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return sent
	}
}

func fine(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Idempotent-Replayed", "false")
	_, _ = io.WriteString(w, `{"ok":true}`)
}

func TestEachRequestIsAnother(t *testing.T) {
	p, sent := plan(t, fine)
	p.First, p.Count = 999_999_999_990, 9
	out := benchtest.Generate(p)
	require.Empty(t, out.Error)
	require.EqualValues(t, 9, out.Sent)
	var want []string
	for n := p.First; n < p.First+9; n++ {
		want = append(want, fmt.Sprintf(`/p Bearer k {"n":"%012d","again":"%012d"}`, n, n))
	}
	require.ElementsMatch(t, want, sent())
}

func TestASpanIsRepeated(t *testing.T) {
	p, sent := plan(t, fine)
	p.Span, p.Count = 2, 8
	require.Empty(t, benchtest.Generate(p).Error)
	bodies := map[string]int{}
	for _, s := range sent() {
		bodies[s]++
	}
	require.Equal(t, map[string]int{
		`/p Bearer k {"n":"000000000000","again":"000000000000"}`: 4,
		`/p Bearer k {"n":"000000000001","again":"000000000001"}`: 4,
	}, bodies)
}

func TestByTime(t *testing.T) {
	p, sent := plan(t, fine)
	p.WarmMS, p.TimeMS, p.Expect = 5, 20, "Idempotent-Replayed: false"
	out := benchtest.Generate(p)
	require.Empty(t, out.Error)
	require.Positive(t, out.Requests)
	require.LessOrEqual(t, out.Requests, out.Sent)
	require.Len(t, sent(), int(out.Sent))
	require.GreaterOrEqual(t, out.Seconds, 0.02)
	require.Positive(t, out.P50)
	require.LessOrEqual(t, out.P50, out.P99)
}

// Whatever is not what was asked for must not pass for throughput.
func TestWrongAnswersAreErrors(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"another status": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "too many", http.StatusTooManyRequests) },
		"success, but not 200": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Idempotent-Replayed", "false")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "{}")
		},
		"not what is expected": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotent-Replayed", "true")
			_, _ = io.WriteString(w, "{}")
		},
		"cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"no length": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := plan(t, answer)
			p.TimeMS, p.Expect = 60_000, "Idempotent-Replayed: false" // fails at once all the same
			out := benchtest.Generate(p)
			require.NotEmpty(t, out.Error)
			require.Zero(t, out.Sent)
		})
	}
}

func FuzzReadMessage(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
	f.Add("POST /x HTTP/1.1\r\ncontent-length:0\r\n\r\n")
	f.Add("HTTP/1.1 500 X\r\nContent-Length: -1\r\n\r\n")
	f.Add("HTTP/1.1 429 X\r\nContent-Length: 99999999999\r\n\r\nx")
	f.Fuzz(func(t *testing.T, raw string) {
		in := bufio.NewReaderSize(strings.NewReader(raw), 4096)
		length, err := benchtest.ReadMessage(in)
		if err != nil {
			return
		}
		rest, err := io.ReadAll(in)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(raw, string(rest)))
		require.LessOrEqual(t, length+len(rest), len(raw))
	})
}
