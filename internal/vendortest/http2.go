package vendortest

import (
	"io"
	"net"
	"net/http"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// HTTP2Fault is what the vendor does to a client that speaks HTTP/2.
type HTTP2Fault string

// Both faults say "not processed", and clients send the request again: GOAWAY
// with a lower last stream id (RFC 9113 section 6.8) and RST_STREAM with
// REFUSED_STREAM (section 8.7).
const (
	GoAway        HTTP2Fault = "goaway"
	RefusedStream HTTP2Fault = "refused_stream"
)

// h2conn serves one HTTP/2 connection, one stream after the other.
type h2conn struct {
	v      *Vendor
	id     int
	framer *http2.Framer
	open   map[uint32]*Arrival
}

func (v *Vendor) serveHTTP2(conn net.Conn, id int) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	s := &h2conn{v: v, id: id, framer: http2.NewFramer(conn, conn), open: make(map[uint32]*Arrival)}
	s.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if s.framer.WriteSettings() != nil {
		return
	}
	for {
		frame, err := s.framer.ReadFrame()
		if err != nil || s.handle(frame) != nil {
			return
		}
	}
}

func (s *h2conn) handle(frame http2.Frame) error {
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return s.framer.WriteSettingsAck()
		}
	case *http2.MetaHeadersFrame:
		s.arrive(f)
		if f.StreamEnded() {
			return s.answer(f.StreamID)
		}
	case *http2.DataFrame:
		s.v.mu.Lock()
		if a := s.open[f.StreamID]; a != nil {
			a.Body = append(a.Body, f.Data()...)
			a.BodyRead = f.StreamEnded()
		}
		s.v.mu.Unlock()
		if f.StreamEnded() {
			return s.answer(f.StreamID)
		}
	}
	return nil
}

func (s *h2conn) arrive(f *http2.MetaHeadersFrame) {
	a := &Arrival{
		Conn: s.id, Proto: "HTTP/2.0", Method: f.PseudoValue("method"), Target: f.PseudoValue("path"),
		Host: f.PseudoValue("authority"), Header: make(http.Header), BodyRead: f.StreamEnded(),
	}
	for _, field := range f.RegularFields() {
		a.Header.Add(field.Name, field.Value)
	}
	s.open[f.StreamID] = a
	s.v.arrive(a)
}

// answer does the fault to the first HTTP2Faulty arrivals and says 200 to the
// others. By then the whole request has been read: the work is done.
func (s *h2conn) answer(stream uint32) error {
	a := s.open[stream]
	delete(s.open, stream)
	if a == nil {
		return nil
	}
	if a.Seq <= max(s.v.cfg.HTTP2Faulty, 1) {
		if s.v.cfg.HTTP2 == RefusedStream {
			return s.framer.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
		}
		if err := s.framer.WriteGoAway(0, http2.ErrCodeNo, nil); err != nil {
			return err
		}
		return io.EOF
	}
	var block strings.Builder
	if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}); err != nil {
		return err
	}
	return s.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: []byte(block.String()), EndHeaders: true, EndStream: true,
	})
}
