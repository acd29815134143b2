// Package sandbox is a small invoice vendor that misbehaves on request, so that
// anyone can see what the gateway does about each kind of trouble without an
// account anywhere.
//
// It owns the vendor's side only: its API, its ledger of invoices and its count
// of what arrived. It knows nothing of the gateway; the gateway reaches it over
// a socket like any vendor, through a manifest. Like most real vendors it does
// not recognise a repeated request: two arrivals are two invoices, and the
// counter shows it.
//
//	POST /v1/invoices            {customer, amount, currency, memo?, marker?, behave?, delay_ms?}
//	GET  /v1/invoices?marker=M   {"data":[…]}, oldest first
//	GET  /v1/invoices/{id}
//	GET  /v1/count               {"arrivals":n,"committed":n}
//
// behave is one of
//
//	ok                  commit and answer 201 (the default)
//	lose_answer         commit, then cut the connection without an answer
//	fail_before_commit  answer 500, nothing committed
//	refuse              answer 422, nothing committed
//	rate_limit          answer 429 with Retry-After: 1, nothing committed
//	slow                wait delay_ms, whether or not anybody waits with it, then as ok
package sandbox

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync"
	"time"
)

// What the vendor holds and waits for at most.
const (
	DefaultCapacity = 10_000
	MaxDelay        = 10 * time.Minute
	maxBody         = 1 << 20
)

// Options change what the vendor does. The zero value is fine.
type Options struct {
	// Token is the only bearer credential accepted; "" accepts any that is not empty.
	Token string
	// Capacity is how many invoices are kept; the oldest give way. 0 means DefaultCapacity.
	Capacity int
	// After waits for the behaviour slow; nil means time.After.
	After func(time.Duration) <-chan time.Time
	// Now dates invoices; nil means time.Now.
	Now func() time.Time
}

// Count is what reached the vendor and what it did.
type Count struct {
	Arrivals  int64 `json:"arrivals"`  // POST /v1/invoices that arrived, whatever became of them
	Committed int64 `json:"committed"` // invoices made
}

// Vendor is the vendor as an http.Handler. It is safe for concurrent use.
type Vendor struct {
	token [sha256.Size]byte
	any   bool
	after func(time.Duration) <-chan time.Time
	now   func() time.Time
	mux   *http.ServeMux

	closeOnce sync.Once
	closed    chan struct{}

	mu    sync.Mutex
	count Count
	books books
}

// New returns a vendor with an empty ledger.
func New(o Options) *Vendor {
	if o.Capacity <= 0 {
		o.Capacity = DefaultCapacity
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	v := &Vendor{
		token: sha256.Sum256([]byte(o.Token)), any: o.Token == "",
		after: o.After, now: o.Now, closed: make(chan struct{}),
		books: books{capacity: o.Capacity, byID: map[string]Invoice{}},
	}
	v.mux = http.NewServeMux()
	v.mux.HandleFunc("POST /v1/invoices", v.create)
	v.mux.HandleFunc("GET /v1/invoices", v.find)
	v.mux.HandleFunc("GET /v1/invoices/{id}", v.get)
	v.mux.HandleFunc("GET /v1/count", v.counted)
	return v
}

// ServeHTTP counts what arrives, checks the credential and routes.
func (v *Vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && r.URL.Path == "/v1/invoices" {
		v.mu.Lock()
		v.count.Arrivals++
		v.mu.Unlock()
	}
	if !v.authorised(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		fail(w, http.StatusUnauthorized, "unauthorized", "send a bearer credential")
		return
	}
	v.mux.ServeHTTP(w, r)
}

// Count returns what has arrived so far, and what it led to.
func (v *Vendor) Count() Count {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.count
}

// Close ends the waits of slow requests, which then commit nothing. It may be
// called twice.
func (v *Vendor) Close() { v.closeOnce.Do(func() { close(v.closed) }) }

func (v *Vendor) authorised(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return false
	}
	sum := sha256.Sum256([]byte(token))
	return v.any || subtle.ConstantTimeCompare(sum[:], v.token[:]) == 1
}
