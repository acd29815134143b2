package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxLine is the longest message on a pipe: the largest body a gateway can be
// told to take, and more.
const maxLine = 64 << 20

// sharedWriter keeps messages of several writers whole.
type sharedWriter struct {
	mu sync.Mutex
	to io.WriteCloser
}

func (w *sharedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// Close closes the pipe.
func (w *sharedWriter) Close() error { return w.to.Close() }

// checkedLines reads messages, one a line, and refuses those that checkEnvelope
// does before the SDK sees them.
type checkedLines struct {
	from  io.ReadCloser
	out   io.Writer
	lines *bufio.Reader
	rest  []byte
}

func (c *checkedLines) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		line, err := c.line()
		if err != nil && len(line) == 0 {
			return 0, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := checkLine(line); err != nil {
			if _, err := fmt.Fprintln(c.out, refusal(line, envelopeCode(line), err)); err != nil {
				return 0, err
			}
			continue
		}
		c.rest = line
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// checkLine also refuses what the SDK would end the whole session for, with the
// calls that still run in it.
func checkLine(line []byte) error {
	if err := checkEnvelope(line); err != nil {
		return err
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil && bytes.TrimSpace(line)[0] == '{' {
		return errNoMessage
	}
	return nil
}

var errLong = errors.New("the message is too long")

// line reads up to a line feed, and no more than maxLine.
func (c *checkedLines) line() ([]byte, error) {
	if c.lines == nil {
		c.lines = bufio.NewReader(c.from)
	}
	var whole bytes.Buffer
	for {
		part, err := c.lines.ReadSlice('\n')
		if whole.Len()+len(part) > maxLine {
			return nil, errLong
		}
		whole.Write(part)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return whole.Bytes(), err
		}
	}
}

// Close closes the pipe.
func (c *checkedLines) Close() error { return c.from.Close() }
