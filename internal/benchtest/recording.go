package benchtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// recorder stands between a client and its Redis and keeps what the client sent.
type recorder struct {
	listener net.Listener
	target   string

	mu   sync.Mutex
	sent []*bytes.Buffer // by connection
	open []net.Conn
	wg   sync.WaitGroup
}

func newRecorder(target string) (*recorder, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &recorder{listener: l, target: target}
	r.wg.Go(r.serve)
	return r, nil
}

func (r *recorder) serve() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = client.Close()
			return
		}
		sent := &bytes.Buffer{}
		r.mu.Lock()
		r.sent, r.open = append(r.sent, sent), append(r.open, client, server)
		r.mu.Unlock()
		r.wg.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		r.wg.Go(func() { _, _ = io.Copy(server, io.TeeReader(client, &guarded{r, sent})); _ = server.Close() })
	}
}

type guarded struct {
	r   *recorder
	out *bytes.Buffer
}

func (g *guarded) Write(p []byte) (int, error) {
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	return g.out.Write(p)
}

// script is the one call of a script that was sent since it was last asked, as it
// was sent. It is asked when the client waits for nothing.
func (r *recorder) script() ([]byte, error) {
	calls, err := r.scripts()
	if err == nil && len(calls) != 1 {
		err = fmt.Errorf("record scripts: %d calls", len(calls))
	}
	if err != nil {
		return nil, err
	}
	return calls[0], nil
}

func (r *recorder) scripts() (calls [][]byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sent := range r.sent {
		in := bytes.NewReader(sent.Bytes())
		for in.Len() > 0 {
			from := sent.Len() - in.Len()
			name, err := skipCommand(in)
			if err != nil {
				return nil, err
			}
			if strings.EqualFold(name, "evalsha") {
				calls = append(calls, bytes.Clone(sent.Bytes()[from:sent.Len()-in.Len()]))
			}
		}
		sent.Reset()
	}
	return calls, nil
}

func (r *recorder) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for _, c := range r.open {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// skipCommand reads one command of the protocol (an array of bulk strings) and
// returns its first word.
func skipCommand(in *bytes.Reader) (name string, err error) {
	line := func(mark byte) (int, error) {
		var text []byte
		for {
			c, err := in.ReadByte()
			if err != nil {
				return 0, err
			}
			if c == '\n' {
				break
			}
			text = append(text, c)
		}
		if len(text) < 3 || text[0] != mark {
			return 0, errors.New("read recorded command: not an array of bulk strings")
		}
		return strconv.Atoi(string(text[1 : len(text)-1]))
	}
	words, err := line('*')
	for i := 0; i < words && err == nil; i++ {
		var n int
		if n, err = line('$'); err == nil {
			word := make([]byte, n+2)
			_, err = io.ReadFull(in, word)
			if i == 0 && err == nil {
				name = string(word[:n])
			}
		}
	}
	return name, err
}

// template is a recorded command, and where in it stands what must differ from
// one to the next.
type template struct {
	command []byte
	holes   []hole
}

type hole struct {
	at   int
	what string // of pairing
	size int
}

// pairing is what one claim and its settle have of their own.
type pairing map[string][]byte

// newTemplate finds everything of a pairing in a command, and each time in it
// that is about now, in digits or in eight bytes.
func newTemplate(command []byte, about time.Time, own pairing) template {
	t := template{command: command}
	for what, value := range own {
		for at := 0; ; {
			i := bytes.Index(command[at:], value)
			if i < 0 {
				break
			}
			t.holes = append(t.holes, hole{at + i, what, len(value)})
			at += i + len(value)
		}
	}
	for i := 0; i+15 <= len(command); i++ {
		if command[i] != '\n' || command[i+14] != '\r' {
			continue
		}
		ms, err := strconv.ParseInt(string(command[i+1:i+14]), 10, 64)
		if err == nil && about.Sub(time.UnixMilli(ms)).Abs() < time.Minute {
			t.holes = append(t.holes, hole{i + 1, "now", 13})
		}
	}
	for i := 0; i+8 <= len(command); i++ {
		ms := int64(binary.BigEndian.Uint64(command[i:]))
		if about.Sub(time.UnixMilli(ms)).Abs() < time.Minute {
			t.holes = append(t.holes, hole{i, "instant", 8})
		}
	}
	return t
}

// fill writes the command for another pairing.
func (t template) fill(out []byte, own pairing) []byte {
	out = append(out[:0], t.command...)
	ms := time.Now().UnixMilli()
	now := strconv.AppendInt(make([]byte, 0, 13), ms, 10)
	instant := binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(ms))
	for _, h := range t.holes {
		value := own[h.what]
		switch h.what {
		case "now":
			value = now
		case "instant":
			value = instant
		}
		copy(out[h.at:h.at+h.size], value)
	}
	return out
}

// renew draws everything anew.
func (p pairing) renew() {
	for _, value := range p {
		for i := 0; i < len(value); i += 8 {
			var b [8]byte
			binary.BigEndian.PutUint64(b[:], rand.Uint64())
			copy(value[i:], b[:])
		}
	}
	copy(p["claim version"], p["claim nonce"]) // a value's version is the head of the nonce
	copy(p["settle version"], p["settle nonce"])
}

// errLate means that the script was not applied: on a busy machine the time in a
// command can be too old when its turn comes. The store sends it again, too.
var errLate = errors.New("run recorded script: not applied")

// answered reads the reply of a script: a string that begins with a mark, or a list
// if the step was not applied.
func answered(in *bufio.Reader) error {
	reply, err := skipReply(in)
	switch {
	case err != nil:
		return fmt.Errorf("run recorded script: %w", err)
	case reply == "":
		return errLate
	case reply[0] != 'A':
		return fmt.Errorf("run recorded script: it said %q", reply)
	default:
		return nil
	}
}

// skipReply reads one reply of the protocol and returns it if it is a string.
func skipReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSpace(line[1:])
	if kind == '-' {
		return "", errors.New(text)
	}
	size, err := strconv.Atoi(text)
	if err != nil {
		return "", err
	}
	switch kind {
	case '$':
		word := make([]byte, max(size, 0)+2)
		_, err = io.ReadFull(in, word)
		return string(word[:max(size, 0)]), err
	case '*':
		for range size {
			if _, err := skipReply(in); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}
