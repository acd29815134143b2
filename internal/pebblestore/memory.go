package pebblestore

import (
	"sync"

	"holdfast.dev/gateway/internal/ledger"
)

// memoryMost bounds what is remembered of values, in bytes. A write in flight
// or lately settled needs two or three entries, a tenant with its key and
// connection three, at 150 to 200 bytes each.
const memoryMost = 16 << 20

// standing is what stands under a value key: an envelope but for its data. The
// zero value is nothing.
type standing struct {
	form    byte // formValue, formCounter, 0 for nothing
	expires int64
	version ledger.Version // of a value
	sum     int64          // of a counter
}

// lives reports whether there is something for a reader at a time.
func (x standing) lives(now int64) bool { return x.form != 0 && (x.expires == 0 || now < x.expires) }

// is reports whether a version is what a reader finds at a time; the zero version
// is nothing. A counter has none, and is not nothing.
func (x standing) is(v ledger.Version, now int64) bool {
	if v == (ledger.Version{}) {
		return !x.lives(now)
	}
	return x.lives(now) && x.version == v
}

// memory remembers what stands under value keys, so that a step's conditions
// need not ask the engine.
//
// It is exact because of when it is read and written: only by who leads the stripe
// of the key's scope, and only with what was read in that, or what a step changed
// that was made. What ends by its expiry needs no writing: the clock never goes
// back, so whether the expirer has deleted it yet makes no difference. A step that
// could not be made leaves no trace here; nor does it matter what one left that the
// log did not take, since the store has failed for good then.
//
// It may know what the engine does not yet: what the group that is being made has
// changed. Until the generation after the one in which that began, none of it is
// forgotten.
//
// There are two generations. What is learned or written goes into the young one;
// when that is full it becomes the old one, and the old one is forgotten, whosever
// it is: a single busy scope has all the room, and many idle ones do not take more.
// What was forgotten and is still in use costs one question.
type memory struct {
	mu         sync.Mutex // held for a look-up or the entries of one step
	most       int        // bytes of a generation
	bytes      int        // of young
	flips      uint64     // how many generations there have been
	young, old map[string]standing
}

// entryCost is what an entry takes beside its key: its place in a map that may
// be half empty.
const entryCost = 128

func newMemory(most int) *memory {
	return &memory{most: most / 2, young: map[string]standing{}}
}

// get is what stands under a key, if that is known, and the generation.
func (m *memory) get(key []byte) (x standing, ok bool, generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x, ok = m.young[string(key)]; !ok {
		x, ok = m.old[string(key)]
	}
	return x, ok, m.flips
}

func (m *memory) generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.flips
}

// found is what stands under one key.
type found struct {
	key string
	standing
}

// put remembers what a step has learned and done, in the order in which it did.
func (m *memory) put(all []found) {
	if len(all) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range all {
		m.set(f.key, f.standing)
	}
}

func (m *memory) set(key string, x standing) {
	cost := len(key) + entryCost
	if cost > m.most {
		m.flips += 2 // it is forgotten at once
		return
	}
	if _, has := m.young[key]; !has {
		if m.bytes+cost > m.most {
			m.young, m.old, m.bytes = make(map[string]standing), m.young, 0
			m.flips++
		}
		m.bytes += cost
	}
	m.young[key] = x
}
