package redisstore

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// call is what a script is called with: the words of the command, of which the
// first are left for what every call has (script.bySum), then keys, then arguments.
type call struct {
	words []any
	keys  int
	key   string // the first of them
	echo  string // what the answer carries (scripts/lib.lua); of echoSize bytes
}

// echoSize makes it as good as certain that no two calls have the same echo.
const echoSize = 8

// withEcho gives a call an echo as its last argument.
func (c call) withEcho() call {
	c.echo = string(binary.BigEndian.AppendUint64(nil, rand.Uint64()))
	c.words = append(c.words, c.echo)
	return c
}

// answer is a reply without the echo of the call, of which it must be the reply.
func (c call) answer(reply any) (any, error) {
	switch r := reply.(type) {
	case string:
		if text, ok := strings.CutSuffix(r, c.echo); ok {
			return text, nil
		}
	case []any:
		if len(r) == 0 {
			return nil, malformed()
		}
		first, _ := r[0].(string)
		if text, ok := strings.CutSuffix(first, c.echo); ok {
			r[0] = text
			return r, nil
		}
	}
	return nil, malformed()
}

// lead is the number of words in front of the keys: EVALSHA, the script, and how
// many keys there are.
const lead = 3

// newCall makes a call of words that lie about.
func newCall(keys []string, args ...any) call {
	words := make([]any, lead, lead+len(keys)+len(args))
	for _, k := range keys {
		words = append(words, k)
	}
	return call{words: append(words, args...), keys: len(keys), key: keys[0]}
}

// writer writes the words of a call one behind the other into one string, so that
// a call of a hundred words takes four allocations. Everything is copied: a
// pipelined command may be sent after its caller has gone.
type writer struct {
	text strings.Builder
	ends []int // of the words, in text
	keys int
}

// grow makes room for so many words of so many bytes in all.
func (w *writer) grow(words, bytes int) {
	w.ends = make([]int, 0, words)
	w.text.Grow(bytes)
}

func (w *writer) end() { w.ends = append(w.ends, w.text.Len()) }

// key writes a key of the parts that keyspace makes it of.
func (w *writer) key(ks keyspace, mark, id, more string) {
	w.text.WriteString(ks.tag)
	w.text.WriteString(mark)
	w.text.WriteString(id)
	w.text.WriteString(more)
	w.end()
	w.keys++
}

func (w *writer) rows(ks keyspace) { w.key(ks, rowsMark, "", "") }

func (w *writer) value(ks keyspace, k ledger.Key) { w.key(ks, valueMark, letter(byte(k.Kind)), k.ID) }

func (w *writer) index(ks keyspace, i ledger.Index) { w.key(ks, indexMark, letter(byte(i)), "") }

func (w *writer) nonce(ks keyspace, n ledger.Nonce) { w.key(ks, nonceMark, string(n[:]), "") }

func (w *writer) bytes(b []byte) {
	w.text.Write(b)
	w.end()
}

func (w *writer) string(s string) {
	w.text.WriteString(s)
	w.end()
}

func (w *writer) int(n int64) {
	var digits [20]byte
	w.text.Write(strconv.AppendInt(digits[:0], n, 10))
	w.end()
}

// uint64 writes 8 bytes of a word that goes on.
func (w *writer) uint64(n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	w.text.Write(b[:])
}

func (w *writer) uint32(n int) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n))
	w.text.Write(b[:])
}

// head writes what stands in front of a value's data (headSize).
func (w *writer) head(v ledger.Version, expires time.Time) {
	w.text.Write(v[:])
	w.uint64(uint64(millis(expires)))
}

// expiry is the end of a value on the server's own clock, empty for none.
func (w *writer) expiry(t time.Time, shift time.Duration) {
	if ms := millis(t); ms != 0 {
		w.int(ms - shift.Milliseconds())
		return
	}
	w.end()
}

// call is what was written.
func (w *writer) call() call {
	text := w.text.String()
	parts, words := make([]string, len(w.ends)), make([]any, lead+len(w.ends))
	from := 0
	for i, end := range w.ends {
		parts[i] = text[from:end]
		words[lead+i] = &parts[i] // a pointer takes no box of its own
		from = end
	}
	return call{words: words, keys: w.keys, key: parts[0]}
}

// encodeStep is the other half of scripts/apply.lua.
func encodeStep(ks keyspace, step ledger.Step, shift time.Duration) call {
	w := &writer{}
	w.grow(size(ks, step))
	w.stepKeys(ks, step)
	w.stepHead(step, shift)
	w.follows(step.Fetch)
	for _, a := range step.Add {
		w.head(ledger.Version{}, a.Expires)
		w.uint64(uint64(a.Delta))
		w.end()
		w.expiry(a.Expires, shift)
	}
	for _, p := range step.Put {
		w.head(step.Nonce.Version(), p.Expires)
		w.bytes(p.Data)
		w.expiry(p.Expires, shift)
	}
	for _, e := range step.Unindex {
		w.string(e.Member)
	}
	for _, e := range step.Index {
		w.int(e.Score.UnixMilli())
		w.string(e.Member)
	}
	for _, row := range step.Rows {
		w.bytes(row)
	}
	c := w.call()
	c.echo = string(step.Nonce[len(step.Nonce)-echoSize:])
	return c
}

// encodeRead is the other half of scripts/read.lua.
func encodeRead(ks keyspace, fetch []ledger.Fetch, shift time.Duration) call {
	w := &writer{}
	w.rows(ks)
	for _, f := range fetch {
		w.value(ks, f.Key)
	}
	w.int(shift.Milliseconds())
	w.follows(fetch)
	return w.call()
}

func (w *writer) stepKeys(ks keyspace, step ledger.Step) {
	w.rows(ks)
	w.nonce(ks, step.Nonce)
	for _, e := range step.Expect {
		w.value(ks, e.Key)
	}
	for _, n := range step.Void {
		w.nonce(ks, n)
	}
	for _, a := range step.Add {
		w.value(ks, a.Key)
	}
	for _, p := range step.Put {
		w.value(ks, p.Key)
	}
	for _, k := range step.Delete {
		w.value(ks, k)
	}
	for _, e := range step.Unindex {
		w.index(ks, e.Index)
	}
	for _, e := range step.Index {
		w.index(ks, e.Index)
	}
	if fetchesExpected(step) {
		return
	}
	for _, f := range step.Fetch {
		w.value(ks, f.Key)
	}
}

// fetchesExpected says whether a step fetches just what it has conditions on, which
// is then named once.
func fetchesExpected(step ledger.Step) bool {
	return slices.EqualFunc(step.Fetch, step.Expect, func(f ledger.Fetch, e ledger.Expect) bool { return f.Key == e.Key })
}

// stepHead writes the times and the numbers of the parts, and the versions.
func (w *writer) stepHead(step ledger.Step, shift time.Duration) {
	for _, ms := range [...]int64{shift.Milliseconds(), step.At.UnixMilli(), before(step.Before)} {
		w.uint64(uint64(ms))
	}
	for _, n := range [...]int{
		len(step.Expect), len(step.Void), len(step.Add), len(step.Put), len(step.Delete),
		len(step.Unindex), len(step.Index), len(step.Rows),
	} {
		w.uint32(n)
	}
	w.end()
	for _, e := range step.Expect {
		w.text.Write(e.Version[:])
	}
	w.end()
}

// follows writes for each fetch how many kinds it is followed into, and which.
func (w *writer) follows(fetch []ledger.Fetch) {
	for _, f := range fetch {
		w.text.WriteByte(byte(len(f.Follow)))
		for _, k := range f.Follow {
			w.text.WriteByte(byte(k))
		}
	}
	w.end()
}

// size is about how many words, and how many bytes, a step is written in.
func size(ks keyspace, step ledger.Step) (words, bytes int) {
	keys := 2 + len(step.Expect) + len(step.Add) + len(step.Void) + len(step.Delete) + len(step.Put) +
		len(step.Unindex) + len(step.Index) + len(step.Fetch)
	words = keys + 3 + 2*len(step.Add) + 2*len(step.Put) + len(step.Unindex) + 2*len(step.Index) + len(step.Rows)
	const id, other = 36, 20 // what most take
	bytes = keys*(len(ks.tag)+id) + (words-keys)*other
	for _, p := range step.Put {
		bytes += len(p.Data)
	}
	for _, row := range step.Rows {
		bytes += len(row)
	}
	return words, bytes
}

// before is the bound as the script compares it: a clock of whole milliseconds
// has reached an instant between two of them at the later one.
func before(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return ceilMillis(t)
}
