package wire_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/wire"
)

// A request that was given up must not reach the vendor afterwards: what the
// system still holds of it, because the vendor or the way there was stalled, is
// thrown away. Left to an orderly close it would be delivered minutes later, when
// somebody may have looked at the vendor and found nothing.
func TestNothingArrivesAfterGivingUp(t *testing.T) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// A small window: most of the request has to wait on our side.
		var err error
		return joinControl(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		}), &err)
	}}
	vendor, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = vendor.Close() }()

	got := client(t, nil).Send(t.Context(), wire.Request{
		Method: "POST", URL: "http://" + vendor.Addr().String() + "/", Body: make([]byte, 100_000), Timeout: 200 * time.Millisecond,
	}, nil)
	require.Equal(t, wire.SentNoAnswer, got.Phase)
	require.Equal(t, wire.ReasonDeadline, got.Reason)

	// Only now does the vendor wake up.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = vendor.Close() })()
	conn, err := vendor.Accept()
	if err != nil {
		return // the connection is gone altogether
	}
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	body, err := io.ReadAll(req.Body)
	require.Error(t, err, "the whole request arrived late, %d bytes", len(body))
}

func joinControl(err error, inner *error) error {
	if err != nil {
		return err
	}
	return *inner
}
