package benchtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// message is an HTTP/1.1 message as far as the rig needs to know it.
type message struct {
	start    string // the first line of an answer that is not 200, and of a request
	expected bool   // whether a line of the head was what it should have been
	body     string // the beginning, of an answer that is not as expected
}

const (
	ok      = "HTTP/1.1 200 OK"
	largest = 1 << 20 // bytes of a body
)

// readMessage reads a message whose length is told by Content-Length, and says
// whether its head has the line expect ("": it has). Any other framing is an
// error: none of the servers measured here uses it for small answers.
func readMessage(in *bufio.Reader, expect string) (message, error) {
	line, err := readLine(in)
	if err != nil {
		return message{}, err
	}
	m := message{start: "HTTP/1.1 200 ", expected: expect == ""}
	fine := bytes.HasPrefix(line, []byte(ok))
	if !fine {
		m.start = string(line)
	}
	length := -1
	for {
		line, err := readLine(in)
		if err != nil {
			return message{}, err
		}
		if len(line) == 0 {
			break
		}
		if !m.expected && string(line) == expect {
			m.expected = true
		}
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return message{}, errors.New("content-length is no number")
			}
		}
	}
	if length < 0 || length > largest {
		return message{}, fmt.Errorf("%s without a content-length from 0 to %d", m.start, largest)
	}
	if fine && m.expected {
		_, err = in.Discard(length)
		return m, err
	}
	body := make([]byte, length)
	_, err = io.ReadFull(in, body)
	m.body = string(body[:min(len(body), 300)])
	return m, err
}

func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}
