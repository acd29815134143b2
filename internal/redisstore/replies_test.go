package redisstore_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
)

// Whatever a server says that is not a clear answer is a doubt: never a
// success, never "absent", and never repeated in the error, since it may quote
// a key.
func TestAnythingButAClearAnswerIsUnavailable(t *testing.T) {
	for name, reply := range map[string]string{
		"loading":          "-LOADING Redis is loading the dataset in memory\r\n",
		"read only":        "-READONLY You can't write against a read only replica.\r\n",
		"master down":      "-MASTERDOWN Link with MASTER is down\r\n",
		"cluster down":     "-CLUSTERDOWN The cluster is down\r\n",
		"try again":        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
		"moved":            "-MOVED 1 127.0.0.1:1\r\n",
		"out of memory":    "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
		"no permission":    "-NOPERM this user has no permissions\r\n",
		"failing disk":     "-MISCONF Redis is configured to save RDB snapshots\r\n",
		"too few copies":   "-NOREPLICAS Not enough good replicas to write.\r\n",
		"busy":             "-BUSY Redis is busy running a script.\r\n",
		"too many":         "-ERR max number of clients reached\r\n",
		"unthought of":     "-ERR sentinel-in-the-reply\r\n",
		"lower case":       "-sentinel-in-the-reply\r\n",
		"no script ever":   "-NOSCRIPT No matching script.\r\n",
		"absent":           "$-1\r\n",
		"absent list":      "*-1\r\n",
		"OK":               "+OK\r\n",
		"text":             "$21\r\nsentinel-in-the-reply\r\n",
		"list of nothing":  "*1\r\n$-1\r\n",
		"list of one":      "*1\r\n$1\r\nA\r\n",
		"applied, half":    "*2\r\n$1\r\nA\r\n$3\r\nabc\r\n",
		"applied, odd":     "*2\r\n$1\r\nA\r\n$10\r\n0123456789\r\n",
		"odd counters":     "$12\r\nA01234567890\r\n",
		"applied, no time": "$5\r\nA0123\r\n",
		"voided, and more": "$17\r\nV0123456789abcdef\r\n",
		"no such mark":     "$9\r\nX01234567\r\n",
		"not a mark":       "*2\r\n$1\r\nX\r\n$8\r\n01234567\r\n",
		"wrong list":       "*2\r\n$8\r\n01234567\r\n:1\r\n",
		"half a pair":      "*2\r\n$8\r\n01234567\r\n*1\r\n$1\r\na\r\n",
		"strange pair":     "*2\r\n$8\r\n01234567\r\n*2\r\n:1\r\n:2\r\n",
		"garbage":          "sentinel-in-the-reply\r\n",
		"cut short":        "*2\r\n$1\r\nA\r\n$8\r\n0123",
		"end of stream":    "",
	} {
		t.Run(name, func(t *testing.T) {
			for _, greeting := range []string{"-ERR unknown command\r\n", reply} {
				url := liar(t, greeting, reply)
				for _, pipeline := range []bool{false, true} {
					s := open(t, redisstore.Options{URL: url, Pipeline: pipeline, Timeout: impatient})
					res, err := s.Apply(t.Context(), ledger.Platform, claim(s, "x"))
					require.Zero(t, res)
					doubt(t, err)
					snap, err := s.Read(t.Context(), ledger.Platform, ledger.Fetch{Key: key("a")})
					require.Zero(t, snap)
					doubt(t, err)
					_, err = s.Entries(t.Context(), ledger.Platform, ledger.EntryRange{Index: ledger.ByHold, Limit: 1})
					doubt(t, err)
					_, err = s.Rows(t.Context(), ledger.Platform, ledger.RowRange{Limit: 1})
					doubt(t, err)
					doubt(t, s.Trim(t.Context(), ledger.Platform, ledger.ByHold, time.Now()))
					doubt(t, s.TrimRows(t.Context(), ledger.Platform, "0000000000000001-0000000000000001"))
					require.Error(t, s.Ready(t.Context()))
				}
			}
		})
	}
}

func doubt(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.NotErrorIs(t, err, ledger.ErrCorrupt)
	require.NotContains(t, err.Error(), "sentinel")
}

// liar is a server that answers each command with the same bytes, save HELLO,
// with which a client begins. A reply of nothing, or half of one, ends the
// connection.
func liar(t *testing.T, hello, reply string) (url string) {
	t.Helper()
	return serving(t, func(conn net.Conn) { lie(conn, hello, reply) })
}

// serving is a server that does one thing with each connection, and closes it.
func serving(t *testing.T, serve func(net.Conn)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var conns []net.Conn
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			running.Go(func() {
				serve(conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		running.Wait()
	})
	return "redis://" + l.Addr().String()
}

func lie(conn net.Conn, hello, reply string) {
	in := bufio.NewReader(conn)
	for {
		words, err := readWords(in)
		if err != nil {
			return
		}
		say := reply
		if strings.EqualFold(words[0], "hello") {
			say = hello
		}
		if _, err := io.WriteString(conn, say); err != nil || !strings.HasSuffix(say, "\r\n") {
			return
		}
	}
}

// readWords reads a command as clients write it.
func readWords(in *bufio.Reader) ([]string, error) {
	parts, err := readCount(in)
	if err != nil {
		return nil, err
	}
	words := make([]string, parts)
	for i := range words {
		size, err := readCount(in)
		if err != nil {
			return nil, err
		}
		buf := make([]byte, size+2)
		if _, err := io.ReadFull(in, buf); err != nil {
			return nil, err
		}
		words[i] = string(buf[:size])
	}
	return words, nil
}

func readCount(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil || len(line) < 4 {
		return 0, io.ErrUnexpectedEOF
	}
	return strconv.Atoi(line[1 : len(line)-2])
}
