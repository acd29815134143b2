package pebblestore

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

// change is one step on its way into its group's batch. What can fail is planned
// before anything of it is written, since the batch is shared.
type change struct {
	group *group
	scope ledger.Scope
	now   int64
	// values is what the step has found and left under value keys so far, the later
	// behind the earlier. It goes into the memory when the step is in the batch, or
	// is refused.
	values []found
	sums   []sum   // of its adds, in order
	notes  []draft // of the values that end
	buf    []byte  // of the last value key
}

// sum is what an add comes to.
type sum struct {
	value int64
	noted bool // when it ends is noted already
}

// begin makes room for a step.
func (c *change) begin(scope ledger.Scope, now int64) {
	clear(c.values)
	*c = change{
		group: c.group, scope: scope, now: now,
		values: c.values[:0], sums: c.sums[:0], notes: c.notes[:0], buf: c.buf,
	}
}

// plan goes through every part of the step that may not be possible, in the order of
// the contract. It returns the sequence of the row that its rows come behind.
func (c *change) plan(step *ledger.Step) (tail uint64, err error) {
	for _, k := range step.Delete {
		c.note(c.key(k), standing{})
	}
	for _, p := range step.Put {
		c.note(c.key(p.Key), standing{form: formValue, expires: expiry(p.Expires), version: step.Nonce.Version()})
	}
	for _, a := range step.Add {
		s, err := c.add(a)
		if err != nil {
			return 0, err
		}
		c.sums = append(c.sums, s)
	}
	if len(step.Rows) == 0 {
		return 0, nil
	}
	return c.group.tail(c.scope)
}

func (c *change) add(a ledger.Add) (sum, error) {
	key := c.key(a.Key)
	at, err := c.stands(key)
	if err != nil {
		return sum{}, fmt.Errorf("read counter: %w", err)
	}
	var s sum
	expires := expiry(a.Expires)
	if at.lives(c.now) {
		if at.form != formCounter {
			return sum{}, fmt.Errorf("read counter: %w", ledger.ErrCorrupt) // a value stands where a counter belongs
		}
		s = sum{at.sum, at.expires == expires}
	}
	if (a.Delta > 0 && s.value > math.MaxInt64-a.Delta) || (a.Delta < 0 && s.value < math.MinInt64-a.Delta) {
		return sum{}, errors.New("add to counter: the sum does not fit 64 bits")
	}
	s.value += a.Delta
	c.note(key, standing{form: formCounter, expires: expires, sum: s.value})
	return s, nil
}

// counters are the sums as they are told.
func (c *change) counters() []int64 {
	if len(c.sums) == 0 {
		return nil
	}
	all := make([]int64, len(c.sums))
	for i, s := range c.sums {
		all[i] = s.value
	}
	return all
}

// write adds every part of a step that was planned to a batch, but its voids.
func (c *change) write(b *pebble.Batch, step *ledger.Step, tail uint64) error {
	for _, k := range step.Delete {
		if err := b.Delete(c.key(k), nil); err != nil {
			return err
		}
	}
	for _, p := range step.Put {
		expires := expiry(p.Expires)
		value, err := c.room(b, c.key(p.Key), expires, valueHeader+len(p.Data), false)
		if value != nil {
			appendValue(value[:0], step.Nonce.Version(), expires, p.Data)
		}
		if err != nil {
			return err
		}
	}
	for i, a := range step.Add {
		expires := expiry(a.Expires)
		value, err := c.room(b, c.key(a.Key), expires, counterLength, c.sums[i].noted)
		if value != nil {
			appendCounter(value[:0], expires, c.sums[i].value)
		}
		if err != nil {
			return err
		}
	}
	if err := c.index(b, step); err != nil {
		return err
	}
	for i, row := range step.Rows {
		if err := b.Set(rowKey(c.scope, c.now, tail+1+uint64(i)), row, nil); err != nil {
			return err
		}
	}
	for _, n := range c.notes {
		if err := b.Set(noteKey(n.expires, c.scope, step.Nonce.Version()), n.list, nil); err != nil {
			return err
		}
	}
	return nil
}

// index removes and adds entries. Where the member of one stood before is for the
// step to say.
func (c *change) index(b *pebble.Batch, step *ledger.Step) error {
	for _, e := range step.Unindex {
		if err := b.Delete(indexKey(c.scope, e.Index, e.Score.UnixMilli(), e.Member), nil); err != nil {
			return err
		}
	}
	for _, e := range step.Index {
		if err := b.Set(indexKey(c.scope, e.Index, e.Score.UnixMilli(), e.Member), nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// room puts a key into the batch, with as much room for its envelope as is asked
// for, and notes when it ends, unless that is noted: what lives and ends at that
// instant is. There is none for one that has ended already: it exists for nobody, so
// it is not written.
func (c *change) room(b *pebble.Batch, key []byte, expires int64, size int, noted bool) ([]byte, error) {
	if expires != 0 && expires <= c.now {
		return nil, b.Delete(key, nil)
	}
	if expires != 0 && !noted {
		c.endsAt(expires).add(key)
	}
	op := b.SetDeferred(len(key), size)
	copy(op.Key, key)
	return op.Value, op.Finish()
}

// endsAt is where the step's values of one end are gathered. A step has few ends.
func (c *change) endsAt(expires int64) *draft {
	for i := range c.notes {
		if c.notes[i].expires == expires {
			return &c.notes[i]
		}
	}
	c.notes = append(c.notes, draft{expires: expires})
	return &c.notes[len(c.notes)-1]
}

// key is the key of a value, until the next is asked for.
func (c *change) key(k ledger.Key) []byte {
	c.buf = appendValueKey(c.buf[:0], c.scope, k)
	return c.buf
}

// stands is what stands under a value key as this step would leave it so far.
func (c *change) stands(key []byte) (standing, error) {
	for _, f := range slices.Backward(c.values) {
		if f.key == string(key) {
			return f.standing, nil
		}
	}
	db, memory := c.group.store.db, c.group.store.memory
	at, ok, generation := memory.get(key)
	if ok {
		return at, nil
	}
	if generation > c.group.began+1 { // something of the group may be forgotten
		if err := c.group.append(); err != nil {
			return standing{}, err
		}
	}
	_, err := view(db, key, func(raw []byte) error {
		e, err := decodeEnvelope(raw)
		at = e.standing()
		return err
	})
	if err != nil {
		return standing{}, err
	}
	c.note(key, at)
	return at, nil
}

func (c *change) note(key []byte, at standing) {
	if c.values == nil {
		c.values = make([]found, 0, 16)
	}
	c.values = append(c.values, found{string(key), at})
}

// expiry is a time as envelopes hold it; the zero time is never. The epoch's own
// millisecond would read as never too, so it is moved by one.
func expiry(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if ms := ceilMillis(t); ms != 0 {
		return ms
	}
	return 1
}
