package tenants

import (
	"sync"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// memory remembers keys for a moment, so that an agent's burst of calls is one
// read. It is bounded, and what this process changes is forgotten at once: eras
// keep out a read that began before the change and ended after it.
type memory struct {
	mu    sync.Mutex
	most  int
	keys  map[string]identity
	count uint64 // of forgettings
}

func newMemory(most int) *memory { return &memory{most: most, keys: map[string]identity{}} }

// era is what put must be given back.
func (m *memory) era() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

func (m *memory) get(id string, now time.Time) (identity, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.keys[id]
	if !ok || !k.fresh(now) {
		return identity{}, false
	}
	return k, true
}

// fresh also distrusts a clock that went backwards.
func (k *identity) fresh(now time.Time) bool {
	age := now.Sub(k.readAt)
	return age >= 0 && age < cacheLife
}

func (m *memory) put(id string, k identity, era uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count != era {
		return
	}
	if _, has := m.keys[id]; !has && len(m.keys) >= m.most {
		m.makeRoom(k.readAt)
	}
	m.keys[id] = k
}

// makeRoom drops what is stale, or else any one: which does not matter, as each
// lives a second at most.
func (m *memory) makeRoom(now time.Time) {
	for id, k := range m.keys {
		if !k.fresh(now) {
			delete(m.keys, id)
		}
	}
	for id := range m.keys {
		if len(m.keys) < m.most {
			return
		}
		delete(m.keys, id)
	}
}

func (m *memory) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	delete(m.keys, id)
}

func (m *memory) forgetScope(scope ledger.Scope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	for id, k := range m.keys {
		if k.tenant.Scope == scope {
			delete(m.keys, id)
		}
	}
}
