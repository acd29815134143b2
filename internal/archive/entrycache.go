package archive

import (
	"sync"

	"holdfast.dev/gateway/internal/ledger"
)

// maxKnownEntries bounds the entries kept in memory, some 600 bytes each.
const maxKnownEntries = 1 << 15

// entryCache keeps entries that were read out of the store, because a look
// through a long log goes over all of them and decoding one takes longer than
// reading it. An entry is kept under the version of its value, which is of that
// value alone. It is safe for concurrent use.
type entryCache struct {
	mu    sync.Mutex
	known map[ledger.Version]Entry
}

func newEntryCache() *entryCache { return &entryCache{known: map[ledger.Version]Entry{}} }

func (c *entryCache) decode(v ledger.Value) (Entry, error) {
	c.mu.Lock()
	e, ok := c.known[v.Version]
	c.mu.Unlock()
	if ok {
		return e, nil
	}
	e, err := decodeEntry(v)
	if err != nil {
		return e, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxKnownEntries {
		clear(c.known) // whoever goes over more than these decodes them each time
	}
	c.known[v.Version] = e
	return e, nil
}
