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

// change builds the batch of one step. It is used under the scope's stripe, so
// that what it reads cannot change until its batch is in the log.
type change struct {
	db     *pebble.DB
	memory *memory
	scope  ledger.Scope
	now    int64
	batch  *pebble.Batch
	// values is what the step has found and left under value keys so far, the later
	// behind the earlier. It goes into the memory when the batch is in the log, or
	// there is none.
	values []found
	notes  []draft // of the values that end
	buf    []byte  // of the last value key
}

// apply adds every part of the step but its rows and voids, in the order of the
// contract, and returns the counters.
func (c *change) apply(step ledger.Step) ([]int64, error) {
	for _, k := range step.Delete {
		key := c.key(k)
		if err := c.batch.Delete(key, nil); err != nil {
			return nil, err
		}
		c.note(key, standing{})
	}
	for _, p := range step.Put {
		if err := c.put(p, step.Nonce.Version()); err != nil {
			return nil, err
		}
	}
	counters, err := c.addAll(step.Add)
	if err != nil {
		return nil, err
	}
	for _, e := range step.Unindex {
		if err := c.unindex(e); err != nil {
			return nil, err
		}
	}
	for _, e := range step.Index {
		if err := c.index(e); err != nil {
			return nil, err
		}
	}
	return counters, c.noteEnds(step.Nonce.Version())
}

func (c *change) put(p ledger.Put, v ledger.Version) error {
	key, expires := c.key(p.Key), expiry(p.Expires)
	c.note(key, standing{form: formValue, expires: expires, version: v})
	value, err := c.room(key, expires, valueHeader+len(p.Data), false)
	if value != nil {
		appendValue(value[:0], v, expires, p.Data)
	}
	return err
}

func (c *change) addAll(adds []ledger.Add) ([]int64, error) {
	if len(adds) == 0 {
		return nil, nil
	}
	sums := make([]int64, len(adds))
	for i, a := range adds {
		sum, err := c.add(a)
		if err != nil {
			return nil, err
		}
		sums[i] = sum
	}
	return sums, nil
}

func (c *change) add(a ledger.Add) (int64, error) {
	key := c.key(a.Key)
	at, err := c.stands(key)
	if err != nil {
		return 0, fmt.Errorf("read counter: %w", err)
	}
	var sum int64
	if at.lives(c.now) {
		if at.form != formCounter {
			return 0, fmt.Errorf("read counter: %w", ledger.ErrCorrupt) // a value stands where a counter belongs
		}
		sum = at.sum
	}
	if (a.Delta > 0 && sum > math.MaxInt64-a.Delta) || (a.Delta < 0 && sum < math.MinInt64-a.Delta) {
		return 0, errors.New("add to counter: the sum does not fit 64 bits")
	}
	sum += a.Delta
	expires := expiry(a.Expires)
	noted := at.lives(c.now) && at.expires == expires
	c.note(key, standing{form: formCounter, expires: expires, sum: sum})
	value, err := c.room(key, expires, counterLength, noted)
	if value != nil {
		appendCounter(value[:0], expires, sum)
	}
	return sum, err
}

// room puts a key into the batch, with as much room for its envelope as is asked
// for, and notes when it ends, unless that is noted: what lives and ends at that
// instant is. There is none for one that has ended already: it exists for nobody, so
// it is not written.
func (c *change) room(key []byte, expires int64, size int, noted bool) ([]byte, error) {
	if expires != 0 && expires <= c.now {
		return nil, c.batch.Delete(key, nil)
	}
	if expires != 0 && !noted {
		c.endsAt(expires).add(key)
	}
	op := c.batch.SetDeferred(len(key), size)
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

func (c *change) noteEnds(v ledger.Version) error {
	for i := range c.notes {
		if err := c.batch.Set(noteKey(c.notes[i].expires, c.scope, v), c.notes[i].list, nil); err != nil {
			return err
		}
	}
	return nil
}

// index puts an entry. Where its member stood before is for the step to say.
func (c *change) index(e ledger.Entry) error {
	return c.batch.Set(indexKey(c.scope, e.Index, e.Score.UnixMilli(), e.Member), nil, nil)
}

func (c *change) unindex(e ledger.Entry) error {
	return c.batch.Delete(indexKey(c.scope, e.Index, e.Score.UnixMilli(), e.Member), nil)
}

// append adds rows behind the row with sequence seq and returns the last one's.
func (c *change) append(rows [][]byte, seq uint64) (uint64, error) {
	for _, row := range rows {
		seq++
		if err := c.batch.Set(rowKey(c.scope, c.now, seq), row, nil); err != nil {
			return 0, err
		}
	}
	return seq, nil
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
	if at, ok := c.memory.get(key); ok {
		return at, nil
	}
	var at standing
	_, err := view(c.db, key, func(raw []byte) error {
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
		c.values = make([]found, 0, 8) // as many as a claim has
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
