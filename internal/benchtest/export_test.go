package benchtest

import "bufio"

// ReadMessage is how much of a message was body that was looked at.
func ReadMessage(in *bufio.Reader) (int, error) {
	m, err := readMessage(in, "")
	return len(m.body), err
}
