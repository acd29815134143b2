package benchtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// roleEnv makes this binary be one of the other processes.
const roleEnv = "HOLDFAST_BENCH_ROLE"

// The roles: what they serve on, or do, they say on standard output.
const (
	roleVendor = "vendor" // answers every request with the same document
	roleProxy  = "proxy"  // httputil.ReverseProxy to the vendor named on its first line of input
	roleEcho   = "echo"   // decodes a request like do's and encodes it again
	roleLoad   = "load"   // reads plans, a line each, and answers outcomes
	roleFloor  = "floor"  // the proxy, or the echo, with frames on a raw log; see newFloor
	roleFiller = "filler" // fills the store named on its first line, and then waits to be killed
)

// PlayRole makes this process be the one that the environment asks for, until its
// standard input ends. It returns false where none is asked for.
func PlayRole() bool {
	in := bufio.NewReader(os.Stdin)
	switch os.Getenv(roleEnv) {
	case roleVendor:
		serve(serveVendor)
	case roleProxy:
		target, _ := in.ReadString('\n')
		proxy := newProxy("http://" + strings.TrimSpace(target))
		serve(func(l net.Listener) { _ = http.Serve(l, proxy) })
	case roleEcho:
		serve(func(l net.Listener) { _ = http.Serve(l, http.HandlerFunc(echo)) })
	case roleFloor:
		what, _ := in.ReadString('\n')
		floor := newFloor(what)
		serve(func(l net.Listener) { _ = http.Serve(l, floor) })
	case roleFiller:
		what, _ := in.ReadString('\n')
		fmt.Println(fillStore(what)) //nolint:forbidigo // the role's own standard output is how it is asked
	case roleLoad:
		for {
			line, err := in.ReadBytes('\n')
			var p Plan
			if err != nil || json.Unmarshal(line, &p) != nil {
				return true
			}
			_ = json.NewEncoder(os.Stdout).Encode(Generate(p))
		}
	default:
		return false
	}
	_, _ = io.Copy(io.Discard, in)
	return true
}

func serve(with func(net.Listener)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	go with(l)
	fmt.Println(l.Addr()) //nolint:forbidigo // the role's own standard output is how it is asked
}

// vendorAnswer is what the vendor always says: a document of 300 bytes.
func vendorAnswer() []byte {
	head := `{"id":"thing_9f2c81e7","object":"thing","created":1790000000,"amount":117.25,"currency":"eur","status":"open","lines":[],"description":"`
	const tail = `"}`
	body := head + strings.Repeat("x", 300-len(head)-len(tail)) + tail
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// serveVendor does as little as it can for a request: the vendor's costs are in
// what is measured on both sides, and would make any difference look smaller.
func serveVendor(l net.Listener) {
	answer := vendorAnswer()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			in := bufio.NewReaderSize(conn, 16<<10)
			for {
				if _, err := readMessage(in, ""); err != nil {
					return
				}
				if _, err := conn.Write(answer); err != nil {
					return
				}
			}
		}()
	}
}

// newProxy is the standard library's, as well tuned as it can be without
// replacing parts of it.
func newProxy(target string) *httputil.ReverseProxy {
	to, err := url.Parse(target)
	if err != nil {
		fail(err)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{
			MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, IdleConnTimeout: time.Minute,
			DisableCompression: true,
		},
		BufferPool: &buffers{},
	}
}

type buffers struct{ pool sync.Pool }

// Get returns a buffer of the size that ReverseProxy would make.
func (b *buffers) Get() []byte {
	if kept, ok := b.pool.Get().(*[]byte); ok {
		return *kept
	}
	return make([]byte, 32<<10)
}

// Put keeps a buffer.
func (b *buffers) Put(buffer []byte) { b.pool.Put(&buffer) }

// echo is a JSON handler that does nothing: what a request of do costs to be read
// and answered at all.
func echo(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Connection string `json:"connection"`
		Action     string `json:"action"`
		Body       struct {
			Collection string `json:"collection"`
			Document   struct {
				Customer    string `json:"customer"`
				Currency    string `json:"currency"`
				Serial      string `json:"serial"`
				Amount      int64  `json:"amount"`
				Description string `json:"description"`
			} `json:"document"`
		} `json:"body"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(in)
}
