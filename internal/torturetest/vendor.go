package torturetest

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// vendorTimeout is how long the connectors of a run wait for the vendor.
const vendorTimeout = 500 * time.Millisecond

// whim is what the vendor does with one arrival.
type whim string

const (
	fine       whim = "fine"
	slow       whim = "slow"              // answers late, but in time
	refusal    whim = "refusal"           // 422, nothing done
	limit      whim = "limit"             // 429, nothing done
	doneBroken whim = "done, then 500"    // the effect is there
	broken     whim = "500"               // nothing done
	doneCut    whim = "done, then cut"    // no answer at all
	cut        whim = "cut"               // nothing done, no answer
	cutHead    whim = "cut in the head"   // nothing done, a success that ends early
	doneHalf   whim = "done, half answer" // the body ends early
	landsLate  whim = "lands late"        // done long after everybody gave up
	moved      whim = "redirect"          // 307 to a place that would do it again
)

// whims lists each whim as often, in a hundred, as it comes.
var whims = []struct {
	whim
	percent int
}{
	{fine, 68}, {slow, 3}, {refusal, 5}, {limit, 4}, {doneBroken, 4}, {broken, 3},
	{doneCut, 4}, {cut, 2}, {cutHead, 1}, {doneHalf, 3}, {landsLate, 2}, {moved, 1},
}

// arrival is one write that reached the vendor.
type arrival struct {
	op, marker, key string
	whim            whim
}

// effect is one thing that the vendor did.
type effect struct {
	id, op, marker string
}

// vendor is a shop with a memory and moods.
//
//	POST /CLASS/things {"op":…, "marker":…}     a write
//	GET  /CLASS/things?marker=M                 what was done for it
//
// CLASS is a, for a vendor that honours its Idempotency-Key, c, for one that can
// be searched by marker, and d, for one that offers nothing.
type vendor struct {
	server *httptest.Server
	seed   uint64
	calm   atomic.Bool // answers everything properly

	mu       sync.Mutex
	arrivals []arrival
	effects  []effect
	visits   map[string]int     // of an op
	keyed    map[string]*effect // class a; nil while it is being done
	late     sync.WaitGroup
}

func newVendor(seed uint64) *vendor {
	v := &vendor{seed: seed, visits: map[string]int{}, keyed: map[string]*effect{}}
	v.server = httptest.NewServer(v)
	return v
}

func (v *vendor) close() {
	v.late.Wait()
	v.server.Close()
}

// ServeHTTP answers a write or a look-up.
func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	class := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")[0]
	if r.Method == http.MethodGet {
		v.search(w, r.URL.Query())
		return
	}
	raw, err := io.ReadAll(r.Body)
	var in struct{ Op, Marker string }
	if err != nil || json.Unmarshal(raw, &in) != nil || in.Op == "" {
		return // a request that was cut on its way
	}
	key := r.Header.Get("Idempotency-Key")
	if class == "d" {
		in.Marker = ""
	}
	mood := v.arrive(class, in.Op, in.Marker, key)
	switch mood {
	case refusal:
		answer(w, http.StatusUnprocessableEntity, `{"error":"no"}`)
		return
	case limit:
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusTooManyRequests, `{"error":"later"}`)
		return
	case broken:
		answer(w, http.StatusInternalServerError, `{"error":"broken"}`)
		return
	case cut:
		hangUp(w)
		return
	case cutHead:
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusCreated)
		flush(w)
		hangUp(w)
		return
	case moved:
		w.Header().Set("Location", v.server.URL+"/d/things")
		answer(w, http.StatusTemporaryRedirect, "")
		return
	case landsLate:
		v.late.Go(func() {
			timer := time.NewTimer(3 * vendorTimeout)
			defer timer.Stop()
			<-timer.C
			v.land(class, in.Op, in.Marker, key)
		})
		<-r.Context().Done() // the gateway gives up
		return
	case slow:
		timer := time.NewTimer(vendorTimeout / 4)
		defer timer.Stop()
		<-timer.C
	}
	done := v.do(class, in.Op, in.Marker, key)
	switch {
	case done == nil:
		answer(w, http.StatusConflict, `{"error":"the first one is still running"}`)
	case mood == doneBroken:
		answer(w, http.StatusInternalServerError, `{"error":"broken"}`)
	case mood == doneCut:
		hangUp(w)
	case mood == doneHalf:
		w.Header().Set("Content-Length", "4000")
		answer(w, http.StatusCreated, done.json())
		flush(w)
		hangUp(w)
	default:
		answer(w, http.StatusCreated, done.json())
	}
}

// arrive notes a write and says what becomes of it. A vendor of class a that
// knows the key has nothing left to refuse or to do; only its answer can fail.
func (v *vendor) arrive(class, op, marker, key string) whim {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.visits[op]++
	mood := fine
	if !v.calm.Load() {
		mood = v.mood(op, v.visits[op])
	}
	_, known := v.keyed[key]
	switch {
	case class != "a":
	case known && mood != slow && mood != doneBroken && mood != doneCut && mood != doneHalf:
		mood = fine
	case mood == landsLate:
		v.keyed[key] = nil
	}
	v.arrivals = append(v.arrivals, arrival{op: op, marker: marker, key: key, whim: mood})
	return mood
}

func (v *vendor) mood(op string, visit int) whim {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%s/%d", v.seed, op, visit)
	n := int(h.Sum64() % 100)
	for _, w := range whims {
		if n -= w.percent; n < 0 {
			return w.whim
		}
	}
	return fine
}

// do has the effect, unless the vendor knows the key. It returns nil where the
// first write under the key is not done yet.
func (v *vendor) do(class, op, marker, key string) *effect {
	v.mu.Lock()
	defer v.mu.Unlock()
	if class == "a" {
		if known, ok := v.keyed[key]; ok {
			return known
		}
	}
	return v.record(class, op, marker, key)
}

// land has the effect of a write that began long ago.
func (v *vendor) land(class, op, marker, key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.record(class, op, marker, key)
}

// record adds to the ledger; the caller holds mu.
func (v *vendor) record(class, op, marker, key string) *effect {
	e := effect{id: fmt.Sprintf("thing_%d", len(v.effects)+1), op: op, marker: marker}
	v.effects = append(v.effects, e)
	if class == "a" {
		v.keyed[key] = &e
	}
	return &e
}

func (e *effect) json() string {
	return fmt.Sprintf(`{"id":%q,"op":%q,"marker":%q,"list":[],"n":1.50}`, e.id, e.op, e.marker)
}

func (v *vendor) search(w http.ResponseWriter, q url.Values) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var found []string
	for _, e := range v.effects {
		if e.marker == q.Get("marker") && e.marker != "" {
			found = append(found, e.json())
		}
	}
	answer(w, http.StatusOK, `{"data":[`+strings.Join(found, ",")+`]}`)
}

// ledger returns what the vendor did and what reached it.
func (v *vendor) ledger() ([]effect, []arrival) {
	v.late.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]effect(nil), v.effects...), append([]arrival(nil), v.arrivals...)
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// hangUp closes the connection with what was flushed so far.
func hangUp(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_ = conn.Close()
}
