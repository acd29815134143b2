package benchtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// redisContests hold pairs of a claim and its settle on a Redis that syncs each
// write against the same scripts with arguments of the same sizes, sent one at a
// time on as many connections, as redis-benchmark does without -P.
//
// redis-benchmark itself cannot send them: it fills each __rand_int__ with another
// number, and here the key that is expected, put and later expected again is the
// same one, with a version that the step before gave it, at a time within a second
// of the server's. So the commands are recorded once, and a client that does
// nothing but fill in names and the time sends them.
func redisContests(short bool) []Entry {
	var all []Entry
	for _, number := range fewer(short, 64, 256) {
		name := fmt.Sprintf("Redis pairs, %d callers", number)
		all = append(all, Entry{Name: name, Open: func(t testing.TB, b *Bench) Contest {
			server := redistest.Start(t, append(redistest.Durable(), "auto-aof-rewrite-percentage 0")...)
			c, err := openRedis(t.Context(), b, number, server)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c.Name = name
			return c
		}})
	}
	return all
}

func openRedis(ctx context.Context, b *Bench, number int, server *redistest.Server) (Contest, error) {
	claim, settle, own, err := record(ctx, server)
	if err != nil {
		return Contest{}, err
	}
	s, err := redisstore.Open(ctx, redisstore.Options{URL: server.URL(), Pipeline: true, Timeout: patience})
	if err != nil {
		return Contest{}, err
	}
	w, err := newWrites(ctx, s, shape{})
	if err != nil {
		return Contest{}, errors.Join(err, s.Close())
	}
	raw, err := newRawClients(number, server.Addr(), claim, settle, own)
	if err != nil {
		return Contest{}, errors.Join(err, s.Close())
	}
	named := func(what string) string { return fmt.Sprintf("%s, %d callers", what, number) }
	return Contest{
		Contestants: []Contestant{
			{Name: "store", Round: b.byCallers(number, w.pair)},
			{Name: "raw", Round: b.byEach(number, raw.sender)},
		},
		Figures: []Figure{
			{Name: named("Redis pairs of claim and settle ÷ the same scripts sent one at a time"), Unit: "/s", Goal: AtLeast(1), Of: Ratio("store", "raw", "per_s")},
			{Name: named("– processor time of a pair, without the server's"), Unit: "µs", Of: Ratio("store", "raw", "cpu_us")},
			{Name: named("– p99 of a pair"), Unit: "ms", Of: Ratio("store", "raw", "p99_ms")},
		},
		Close: func() {
			raw.close()
			_ = s.Close()
			_ = server.Kill()
		},
	}, nil
}

// record makes one pair through the store and keeps what it sent.
func record(ctx context.Context, server *redistest.Server) (claim, settle template, own pairing, err error) {
	r, err := newRecorder(server.Addr())
	if err != nil {
		return claim, settle, nil, err
	}
	defer r.close()
	s, err := redisstore.Open(ctx, redisstore.Options{URL: "redis://" + r.listener.Addr().String()})
	if err != nil {
		return claim, settle, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	w, err := newWrites(ctx, s, shape{name: "record"}) // its guards are put once
	if err != nil {
		return claim, settle, nil, err
	}
	if err := w.pair(ctx); err != nil { // now the server knows the scripts
		return claim, settle, nil, err
	}
	if _, err := r.scripts(); err != nil {
		return claim, settle, nil, err
	}
	x, err := w.claim(ctx)
	if err != nil {
		return claim, settle, nil, err
	}
	rec := x.handle.Record
	first, err := r.script()
	if err != nil {
		return claim, settle, nil, err
	}
	if err := w.settle(ctx, x); err != nil {
		return claim, settle, nil, err
	}
	second, err := r.script()
	if err != nil {
		return claim, settle, nil, err
	}
	own = pairing{
		"identity": bytes.Clone(rec.Identity[:]), "id": bytes.Clone(rec.ID[:]),
		"claim nonce": nonceOf(first), "settle nonce": nonceOf(second),
	}
	own["claim version"], own["settle version"] = bytes.Clone(own["claim nonce"][:8]), bytes.Clone(own["settle nonce"][:8])
	now := time.Now()
	return newTemplate(first, now, own), newTemplate(second, now, own), own, nil
}

// nonceOf is the name behind "#n" in the second key of the script.
func nonceOf(command []byte) []byte {
	i := bytes.Index(command, []byte("}#n"))
	return bytes.Clone(command[i+3 : i+3+16])
}

// rawClients are connections that send recorded pairs.
type rawClients struct {
	claim, settle template
	free          []*rawClient
	next          atomic.Int64
}

type rawClient struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	own  pairing
}

func newRawClients(number int, addr string, claim, settle template, own pairing) (*rawClients, error) {
	r := &rawClients{claim: claim, settle: settle}
	for range number {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		mine := pairing{}
		for what, value := range own {
			mine[what] = bytes.Clone(value)
		}
		r.free = append(r.free, &rawClient{conn: conn, in: bufio.NewReader(conn), own: mine})
	}
	return r, nil
}

// sender gives each caller a connection of its own.
func (r *rawClients) sender() func(context.Context) error {
	c := r.free[int(r.next.Add(1)-1)%len(r.free)]
	return func(context.Context) error {
		c.own.renew()
		for _, t := range []template{r.claim, r.settle} {
			if err := c.send(t); err != nil {
				return err
			}
		}
		return nil
	}
}

func (c *rawClient) send(t template) error {
	err := errLate
	for tries := 0; errors.Is(err, errLate) && tries < 10; tries++ {
		c.out = t.fill(c.out, c.own)
		if _, err = c.conn.Write(c.out); err == nil {
			err = answered(c.in)
		}
	}
	return err
}

func (r *rawClients) close() {
	for _, c := range r.free {
		_ = c.conn.Close()
	}
}
