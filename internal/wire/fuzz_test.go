package wire_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
	"holdfast.dev/gateway/internal/wire"
)

// FuzzAnswer sends any bytes as the answer to a request that arrived. Whatever
// they are, the request was sent, the state of the body is one of the four, and
// nothing arrives twice.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		"", "\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + vendortest.Gzip("{}"),
		"HTTP/1.1 101 X\r\nUpgrade: y\r\nConnection: upgrade\r\n\r\nz", "HTTP/1.1 103 X\r\n\r\nHTTP/1.1 204 Y\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 500 X\r\n\r\n", "HTTP/1.0 999 \r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{",
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	v := vendortest.New(f, nil)
	c := client(f, v, func(cfg *wire.Config) { cfg.MaxBody, cfg.MaxHead = 1<<10, 1<<10 })
	f.Fuzz(func(t *testing.T, answer []byte, fresh bool) {
		before := v.Arrivals()
		v.Use(vendortest.Raw(string(answer)))
		req := post(v)
		req.FreshConnection, req.Timeout = fresh, 5*time.Second
		got := c.Send(t.Context(), req, nil)
		// The vendor closes behind each answer. A connection whose end is still
		// under way when the next request is written makes an unknown with no
		// arrival: the keep-alive race that FreshConnection avoids.
		arrived := v.Arrivals() - before
		require.LessOrEqual(t, arrived, 1)
		if fresh {
			require.Equal(t, 1, arrived)
		}
		switch got.Phase {
		case wire.SentNoAnswer:
			require.NotEmpty(t, got.Reason)
			require.Zero(t, got.Status)
		case wire.Answered:
			require.GreaterOrEqual(t, got.Status, 100)
			require.Contains(t, []wire.BodyState{wire.Complete, wire.Cut, wire.TooLarge, wire.Unreadable}, got.Body.State)
			require.LessOrEqual(t, got.Body.Size, int64(1<<10)+1)
			if got.Body.State == wire.Complete {
				require.Equal(t, sha256.Sum256(got.Body.Bytes), got.Body.SHA256)
				require.Empty(t, got.Reason)
			}
		default:
			t.Fatalf("phase %q", got.Phase)
		}
	})
}
