package benchtest

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The load generator. It shares the processors with what it measures, so it does
// little: requests are bytes made once, in which a number is overwritten, and of
// answers it reads status and length.

// patience ends a run in which something never answers.
const patience = 20 * time.Second

// load is one plan being carried out.
type load struct {
	Plan
	next     atomic.Int64
	counting atomic.Bool
	counted  atomic.Int64
	done     atomic.Bool
	failure  atomic.Pointer[error]
	began    time.Time
}

// caller is one connection with its requests.
type caller struct {
	*load
	conn    net.Conn
	in      *bufio.Reader
	request []byte
	holes   []int
	sent    int64
	times   []time.Duration
}

// Generate carries out a plan.
func Generate(p Plan) Outcome {
	out, err := generate(p)
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

func generate(p Plan) (Outcome, error) {
	l := &load{Plan: p}
	callers := make([]*caller, p.Callers)
	defer func() {
		for _, c := range callers {
			if c != nil {
				_ = c.conn.Close()
			}
		}
	}()
	for i := range callers {
		c, err := l.dial()
		if err != nil {
			return Outcome{}, err
		}
		callers[i] = c
	}
	var running sync.WaitGroup
	for _, c := range callers {
		running.Go(c.run)
	}
	if p.Count > 0 {
		running.Wait()
		return l.gather(callers, 0, nil, nil)
	}
	l.wait(p.WarmMS, 0)
	before := cpu(p.PIDs)
	l.began = time.Now()
	l.counting.Store(true)
	l.wait(p.TimeMS, 1)
	l.done.Store(true)
	took := time.Since(l.began)
	after := cpu(p.PIDs)
	running.Wait()
	return l.gather(callers, took, before, after)
}

// wait lasts until so many requests are counted, too, and ends early when a caller
// has failed.
func (l *load) wait(ms, count int64) {
	const look = 20 * time.Millisecond
	tick := time.NewTimer(0)
	defer tick.Stop()
	end := time.Now().Add(time.Duration(ms) * time.Millisecond)
	for (time.Now().Before(end) || l.counted.Load() < count) && l.failure.Load() == nil {
		tick.Reset(max(time.Millisecond, min(look, time.Until(end))))
		<-tick.C
	}
}

func (l *load) gather(callers []*caller, took time.Duration, before, after []float64) (Outcome, error) {
	out := Outcome{Seconds: took.Seconds()}
	var times []time.Duration
	for _, c := range callers {
		out.Sent += c.sent
		times = append(times, c.times...)
	}
	if failure := l.failure.Load(); failure != nil {
		return out, *failure
	}
	for i := range before {
		out.CPU = append(out.CPU, after[i]-before[i])
	}
	out.Requests = int64(len(times))
	if len(times) == 0 {
		return out, nil // nobody counted
	}
	slices.Sort(times)
	out.P50 = times[len(times)/2].Seconds()
	out.P99 = times[len(times)*99/100].Seconds()
	return out, nil
}

func (l *load) dial() (*caller, error) {
	conn, err := net.Dial("tcp", l.Addr)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	limit := patience + time.Duration(l.WarmMS+l.TimeMS)*time.Millisecond
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	c := &caller{load: l, conn: conn, in: bufio.NewReaderSize(conn, 16<<10)}
	c.request = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", l.Path, l.Addr, len(l.Body))
	if l.Key != "" {
		c.request = fmt.Appendf(c.request, "Authorization: Bearer %s\r\n", l.Key)
	}
	c.request = append(append(c.request, "\r\n"...), l.Body...)
	for from := 0; ; {
		at := bytes.Index(c.request[from:], []byte(Hole))
		if at < 0 {
			return c, nil
		}
		c.holes = append(c.holes, from+at)
		from += at + len(Hole)
	}
}

// run makes requests until the run is over or one has failed.
func (c *caller) run() {
	for !c.done.Load() {
		n := c.next.Add(1) - 1
		if c.Count > 0 && n >= c.Count {
			return
		}
		if c.Span > 0 {
			n %= c.Span
		}
		began := time.Now()
		if err := c.ask(c.First + n); err != nil {
			c.failure.CompareAndSwap(nil, &err)
			c.done.Store(true)
			return
		}
		if c.counting.Load() && !c.done.Load() {
			c.times = append(c.times, time.Since(began))
			c.counted.Add(1)
		}
		c.sent++
	}
}

func (c *caller) ask(n int64) error {
	for _, at := range c.holes {
		digits(c.request[at:at+len(Hole)], n)
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	m, err := readMessage(c.in, c.Expect)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if !strings.HasPrefix(m.start, "HTTP/1.1 200 ") || !m.expected {
		return fmt.Errorf("answer: %s, as expected: %v: %s", m.start, m.expected, m.body)
	}
	return nil
}

// digits writes a number over all of dst.
func digits(dst []byte, n int64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}
