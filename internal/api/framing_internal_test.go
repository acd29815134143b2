package api

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// However the bytes are cut, the verdict is the same.
func FuzzFraming(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "GET / HTTP/1.1\n\n", "A\r\nB\r\n C\r\n\r\n",
		"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = max(size&15, 1)
		var whole, cut framing
		want := whole.feed(bytes.Clone(data))
		var got error
		for rest := data; len(rest) > 0 && got == nil; {
			n := min(size, len(rest))
			got = cut.feed(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, want, got)
		require.LessOrEqual(t, len(cut.line), maxFramingLine)
		require.LessOrEqual(t, len(cut.tail), len(oldVersion))
	})
}
