package archive

import "sync"

// termsCacheBytes bounds the filters kept in memory: those of some 5,000 full
// segments, 20 million rows.
const termsCacheBytes = 64 << 20

// termsCache keeps filters of segments, which never change. Which one makes room
// does not matter much: queries go through segments in order.
type termsCache struct {
	mu    sync.Mutex
	most  int
	bytes int
	kept  map[string]Terms
}

func newTermsCache(most int) *termsCache { return &termsCache{most: most, kept: map[string]Terms{}} }

func (c *termsCache) get(name string) (Terms, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.kept[name]
	return t, ok
}

func (c *termsCache) put(name string, t Terms) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.kept[name]; known || len(t.bits) > c.most {
		return
	}
	for victim, v := range c.kept {
		if c.bytes+len(t.bits) <= c.most {
			break
		}
		c.bytes -= len(v.bits)
		delete(c.kept, victim)
	}
	c.kept[name] = t
	c.bytes += len(t.bits)
}
