package pebblestore

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// compactions lets the engine make one compaction at a time, as it would by itself,
// and none before the folder is open. What it finds in the logs when it is opened it
// writes to tables, which asks for compactions; were they begun then, it would wait
// for them, some of which take seconds, though nothing depends on them.
type compactions struct {
	mu     sync.Mutex // held for no call of the engine
	quiet  *sync.Cond // of mu: an offer was answered
	engine pebble.DBForCompaction

	begun   bool // the folder is open
	ended   bool // the engine is being closed
	running bool // a compaction is, or is being offered to the engine
	refused bool // the engine, since one was offered to it
	offers  int  // that the engine has not answered
}

func newCompactions() *compactions {
	c := &compactions{}
	c.quiet = sync.NewCond(&c.mu)
	return c
}

// Register is how the engine makes itself known.
func (c *compactions) Register(_ int, engine pebble.DBForCompaction) { c.engine = engine }

// Unregister returns when the engine is not called any more.
func (c *compactions) Unregister() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for c.offers > 0 {
		c.quiet.Wait()
	}
}

// TrySchedule is the engine asking for a compaction. Refused, it waits to be offered
// one.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun || c.ended || c.running {
		c.refused = true
		return false, nil
	}
	c.running = true
	return true, c
}

// UpdateGetAllowedWithoutPermission says that there may be more compactions at a
// time, which there never may.
func (*compactions) UpdateGetAllowedWithoutPermission() {}

// begin is called when the folder is open.
func (c *compactions) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun = true
	c.offer()
}

// Done is called when a compaction is over.
func (c *compactions) Done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
	c.offer()
}

// offer lets the engine make the compaction that it waits for. The engine may begin
// to wait while it answers that it does not: then it is asked again. One that it
// takes may be over before it says so.
func (c *compactions) offer() {
	if c.ended || c.running {
		return
	}
	c.running = true
	c.offers++
	for again := true; again; {
		c.refused = false
		c.mu.Unlock()
		taken := c.engine.Schedule(c)
		c.mu.Lock()
		again = !taken && c.refused && !c.ended
		c.running = c.running && (taken || again)
	}
	c.offers--
	c.quiet.Broadcast()
}

// Started, MeasureCPU and CumulativeStats tell how a compaction fares.
func (*compactions) Started()                                          {}
func (*compactions) MeasureCPU(pebble.CompactionGoroutineKind)         {}
func (*compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}
