package api

import (
	"bytes"
	"errors"
	"net"
	"strconv"
)

// net/http reads requests more generously than is safe behind a proxy: it takes
// bare line feeds and folded lines, merges equal Content-Lengths, and lets
// Transfer-Encoding win over Content-Length without a word. A proxy in front that
// decides otherwise sees other requests than this server, which is how one
// client's request becomes part of another's (RFC 9112 sections 11.1, 11.2). So
// the bytes of each connection pass a reader that follows the framing strictly
// and breaks off where two readings are possible; net/http then answers 400 and
// closes the connection.

// errFraming is what net/http gets instead of bytes. It must be no net.Error and
// no EOF, which net/http answers with silence.
var errFraming = errors.New("request framing is ambiguous")

// strictListener guards the framing of every connection it accepts.
type strictListener struct{ net.Listener }

// Strict returns a listener whose connections carry HTTP/1 with only one possible
// framing. It wants connections in clear: TLS goes beneath it.
func Strict(l net.Listener) net.Listener { return strictListener{l} }

func (l strictListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // a listener's errors are its caller's
	}
	return &strictConn{Conn: c}, nil
}

// strictConn is read by one goroutine at a time, as net/http does.
type strictConn struct {
	net.Conn
	framing framing
	broken  bool
}

// Read gives bytes on only if all of them are sound, so that nothing of an
// ambiguous request is ever seen above.
func (c *strictConn) Read(p []byte) (int, error) {
	if c.broken {
		return 0, errFraming
	}
	n, err := c.Conn.Read(p)
	if c.framing.feed(p[:n]) != nil {
		c.broken = true
		return 0, errFraming
	}
	return n, err //nolint:wrapcheck // EOF and time-outs must stay what they are
}

// CloseWrite lets net/http end its side before the client's bytes are dropped, so
// that a refusal is not lost in a reset.
func (c *strictConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // as above
	}
	return nil
}

// part is where in a message the framing is.
type part int

const (
	inRequestLine part = iota
	inHeader
	inBody
	inChunkSize
	inChunk
	inChunkEnd
	inTrailer
)

// maxFramingLine is how much of a line is looked at: more than a header needs
// that decides about framing.
const maxFramingLine = 256

// oldVersion is how a request line of HTTP/1.0 ends.
const oldVersion = " HTTP/1.0"

// framing follows the messages of one connection (RFC 9112 sections 2.2, 5, 6,
// 7.1).
type framing struct {
	at   part
	line []byte // so far, at most maxFramingLine bytes
	long bool   // the line is longer
	cr   bool   // the last byte was CR
	tail []byte // the end of a request line

	old       bool  // the request is of HTTP/1.0
	left      int64 // bytes of the body or chunk
	length    int64
	hasLength bool
	chunked   bool
}

func (f *framing) feed(p []byte) error {
	for len(p) > 0 {
		if f.at == inBody || f.at == inChunk {
			n := min(int64(len(p)), f.left)
			p, f.left = p[n:], f.left-n
			if f.left == 0 {
				f.endData()
			}
			continue
		}
		rest, err := f.feedLine(p)
		if err != nil {
			return err
		}
		p = rest
	}
	return nil
}

// next begins a message: nothing is kept of the one before but room.
func (f *framing) next() { *f = framing{line: f.line[:0], tail: f.tail[:0]} }

func (f *framing) endData() {
	if f.at == inChunk {
		f.at = inChunkEnd
		return
	}
	f.next()
}

// feedLine takes bytes up to the end of a line. A line ends with CR LF, and
// neither stands anywhere else.
func (f *framing) feedLine(p []byte) (rest []byte, err error) {
	end := bytes.IndexByte(p, '\n')
	part, done := p, end >= 0
	if done {
		part = p[:end]
	}
	if len(part) > 0 {
		// CR may only be the very last byte before LF.
		if f.cr || bytes.IndexByte(part[:len(part)-1], '\r') >= 0 {
			return nil, errFraming
		}
		if f.cr = part[len(part)-1] == '\r'; f.cr {
			part = part[:len(part)-1]
		}
		room := maxFramingLine - len(f.line)
		f.long = f.long || len(part) > room
		f.line = append(f.line, part[:min(len(part), room)]...)
		if f.at == inRequestLine {
			f.tail = append(f.tail, part[max(len(part)-len(oldVersion), 0):]...)
			f.tail = f.tail[max(len(f.tail)-len(oldVersion), 0):]
		}
	}
	if !done {
		return nil, nil
	}
	if !f.cr {
		return nil, errFraming
	}
	err = f.endLine(f.line)
	f.line, f.long, f.cr = f.line[:0], false, false
	return p[end+1:], err
}

func (f *framing) endLine(line []byte) error {
	switch f.at {
	case inRequestLine:
		if len(line) > 0 { // an empty line before a request is passed over
			f.at, f.old = inHeader, string(f.tail) == oldVersion
		}
	case inHeader:
		if len(line) == 0 {
			return f.endHead()
		}
		return f.field(line)
	case inChunkSize:
		return f.chunkSize(line)
	case inChunkEnd:
		if len(line) > 0 {
			return errFraming
		}
		f.at = inChunkSize
	case inTrailer:
		if len(line) == 0 {
			f.next()
			return nil
		}
		return f.field(line)
	case inBody, inChunk: // not made of lines
	}
	return nil
}

// field reads one header. Only two of them decide where a message ends, each at
// most once and never both; in a trailer neither has any business.
func (f *framing) field(line []byte) error {
	if line[0] == ' ' || line[0] == '\t' {
		return errFraming // a folded line
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.Trim(value, " \t")
	// A name with blanks is refused by net/http; here it is what it looks like.
	name = bytes.TrimRight(name, " \t")
	isLength := bytes.EqualFold(name, []byte("Content-Length"))
	isCoding := bytes.EqualFold(name, []byte("Transfer-Encoding"))
	switch {
	case !isLength && !isCoding:
		return nil
	case f.at == inTrailer, f.hasLength, f.chunked, f.long:
		return errFraming
	case isCoding:
		f.chunked = true
		// HTTP/1.0 has no codings: net/http takes such a request for one without a
		// body (RFC 9112 section 6.1).
		if f.old || !bytes.EqualFold(value, []byte("chunked")) {
			return errFraming
		}
		return nil
	}
	f.hasLength = true
	n, ok := digits(value, 10)
	f.length = n
	if !ok {
		return errFraming
	}
	return nil
}

func (f *framing) endHead() error {
	switch {
	case f.chunked:
		f.at = inChunkSize
	case f.length > 0:
		f.at, f.left = inBody, f.length
	default:
		f.next()
	}
	return nil
}

func (f *framing) chunkSize(line []byte) error {
	size, _, _ := bytes.Cut(line, []byte(";"))
	n, ok := digits(bytes.TrimRight(size, " \t"), 16)
	if !ok || f.long {
		return errFraming
	}
	if n == 0 {
		f.at = inTrailer
		return nil
	}
	f.at, f.left = inChunk, n
	return nil
}

// digits reads a number that is nothing but digits: no sign, no prefix.
func digits(text []byte, base int) (int64, bool) {
	if len(text) == 0 || text[0] == '+' || text[0] == '-' || bytes.IndexByte(text, '_') >= 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), base, 63)
	return n, err == nil
}
