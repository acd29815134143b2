package vendortest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Zone answers look-ups: the addresses of a name, which comes in lower case and
// without its final dot. None means the name does not exist (NXDOMAIN). It is
// called once for each record type, from several goroutines.
type Zone func(name string) []netip.Addr

// Static is a Zone that always says the same.
func Static(names map[string]string) Zone {
	return func(name string) []netip.Addr {
		if addr, err := netip.ParseAddr(names[name]); err == nil {
			return []netip.Addr{addr}
		}
		return nil
	}
}

// Nothing is a Zone in which no name exists.
func Nothing(string) []netip.Addr { return nil }

// Resolver asks zone instead of the network. Names in the machine's hosts file
// are answered from there first.
func Resolver(zone Zone) *net.Resolver {
	return &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go serveNames(server, zone)
			return client, nil
		},
	}
}

// serveNames answers queries until the client closes. A pipe is a stream, so
// each message has its length in front (RFC 1035 section 4.2.2).
func serveNames(conn net.Conn, zone Zone) {
	defer func() { _ = conn.Close() }()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply, err := answerQuery(query, zone)
		if err != nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(nil, uint16(len(reply)))
		if _, err := conn.Write(append(framed, reply...)); err != nil {
			return
		}
	}
}

func answerQuery(query []byte, zone Zone) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, io.ErrUnexpectedEOF
	}
	q := m.Questions[0]
	addrs := zone(strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")))
	reply := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: m.Questions,
	}
	if len(addrs) == 0 {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addrs {
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return reply.Pack()
}
