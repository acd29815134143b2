package vendortest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Class is what a vendor offers against repeats.
type Class string

// The four classes of vendors.
const (
	// Replaying remembers an Idempotency-Key and the answer given under it.
	Replaying Class = "A"
	// ClientID lets the client choose the id of a record and refuses a second one.
	ClientID Class = "B"
	// MarkerOnly keeps a marker and can be searched for it.
	MarkerOnly Class = "C"
	// Forgetful keeps nothing a write could be known by.
	Forgetful Class = "D"
)

// ShopConfig says how a Shop behaves.
type ShopConfig struct {
	Class Class
	// Answer is what becomes of the answer to the nth write that arrived, from 1,
	// resends included; nil answers all of them. The work is done all the same.
	Answer func(n int) Behaviour
	// LandAfter is how long after its arrival a write has its effect, whether or
	// not anybody still waits. Until then a repeat under the same key or id is
	// told that the first one is running.
	LandAfter time.Duration
	// SearchLag is how long after its effect a record shows up in a search by
	// marker. A read by id does not lag.
	SearchLag time.Duration
	// KeyLife is how long an Idempotency-Key is remembered; 0 means for ever.
	KeyLife time.Duration
	// Twice makes every write leave two records, as a vendor with a fault does.
	Twice bool
}

// Shop is a vendor with a memory:
//
//	POST /things              {"n":…, "id":…, "marker":…}
//	GET  /things/{id}         200 or 404
//	GET  /things?marker=M     {"data":[…]}
//
// It counts effects, not requests: what a buyer would see on the bill. Serve is
// its Behaviour.
type Shop struct {
	cfg ShopConfig

	mu      sync.Mutex
	writes  int // that arrived
	lookups int
	things  []thing
	keys    map[string]keyed
	running map[string]int // look-ups and writes under way, by marker
	crowd   int            // the most of them at once for one marker
}

type thing struct {
	ID     string          `json:"id"`
	N      json.RawMessage `json:"n"`
	Marker string          `json:"marker,omitempty"`
	lands  time.Time
}

type keyed struct {
	body  string // of the answer
	since time.Time
	lands time.Time
}

// NewShop returns a shop. Serve it from a Vendor.
func NewShop(cfg ShopConfig) *Shop {
	return &Shop{cfg: cfg, keys: make(map[string]keyed), running: make(map[string]int)}
}

// Effects is how many records there are or will be for each n.
func (s *Shop) Effects() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, t := range s.things {
		out[string(t.N)]++
	}
	return out
}

// Writes is the number of writes that arrived, Lookups that of reads.
func (s *Shop) Writes() int { s.mu.Lock(); defer s.mu.Unlock(); return s.writes }

// Lookups is the number of reads that arrived.
func (s *Shop) Lookups() int { s.mu.Lock(); defer s.mu.Unlock(); return s.lookups }

// Crowd is the most look-ups for one marker that were under way at once.
func (s *Shop) Crowd() int { s.mu.Lock(); defer s.mu.Unlock(); return s.crowd }

// Serve answers one arrival.
func (s *Shop) Serve(c *Call) {
	body := c.ReadBody()
	target, err := url.Parse(c.Arrival.Target)
	switch {
	case err != nil:
		c.JSON(http.StatusBadRequest, `{"error":"target"}`)
	case c.Arrival.Method == http.MethodPost:
		s.write(c, body)
	default:
		s.read(c, target)
	}
}

func (s *Shop) write(c *Call, body []byte) {
	var in thing
	if err := json.Unmarshal(body, &in); err != nil || in.N == nil {
		c.JSON(http.StatusBadRequest, `{"error":"body"}`)
		return
	}
	status, answer, n := s.land(in, c.Arrival.Header.Get("Idempotency-Key"))
	if s.cfg.Answer != nil {
		if lose := s.cfg.Answer(n); lose != nil {
			lose(c)
			return
		}
	}
	c.JSON(status, answer)
}

// land does the work of a write, or recognises that it was done.
func (s *Shop) land(in thing, key string) (status int, answer string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	now := time.Now()
	in.lands = now.Add(s.cfg.LandAfter)
	if s.cfg.Class == Replaying {
		if k, ok := s.keys[key]; ok && (s.cfg.KeyLife == 0 || now.Sub(k.since) < s.cfg.KeyLife) {
			if now.Before(k.lands) {
				return http.StatusConflict, `{"error":"running"}`, s.writes
			}
			return http.StatusCreated, k.body, s.writes
		}
	}
	if s.cfg.Class == ClientID {
		for _, t := range s.things {
			if t.ID == in.ID {
				return http.StatusConflict, `{"error":"exists"}`, s.writes
			}
		}
	} else {
		in.ID = fmt.Sprintf("thing_%d", len(s.things)+1)
	}
	if s.cfg.Class == Forgetful {
		in.Marker = ""
	}
	raw, _ := json.Marshal(in)
	s.things = append(s.things, in)
	if s.cfg.Twice {
		s.things = append(s.things, in)
	}
	if s.cfg.Class == Replaying {
		s.keys[key] = keyed{body: string(raw), since: now, lands: in.lands}
	}
	return http.StatusCreated, string(raw), s.writes
}

func (s *Shop) read(c *Call, target *url.URL) {
	marker := target.Query().Get("marker")
	id, byID := strings.CutPrefix(target.Path, "/things/")
	name := marker + id
	s.enter(name)
	defer s.leave(name)
	lag := s.cfg.SearchLag
	if byID {
		lag = 0
	}
	found := s.visible(lag, func(t thing) bool { return byID && t.ID == id || !byID && t.Marker == marker && marker != "" })
	switch {
	case byID && len(found) == 0:
		c.JSON(http.StatusNotFound, `{"error":"no such thing"}`)
	case byID:
		raw, _ := json.Marshal(found[0])
		c.JSON(http.StatusOK, string(raw))
	default:
		raw, _ := json.Marshal(map[string]any{"data": found})
		c.JSON(http.StatusOK, string(raw))
	}
}

func (s *Shop) visible(lag time.Duration, match func(thing) bool) []thing {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []thing{}
	for _, t := range s.things {
		if match(t) && !time.Now().Before(t.lands.Add(lag)) {
			found = append(found, t)
		}
	}
	return found
}

func (s *Shop) enter(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups++
	s.running[name]++
	s.crowd = max(s.crowd, s.running[name])
}

func (s *Shop) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[name]--
}
