package redisstore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
)

// Gateways of two releases run side by side over the same data while they are
// replaced, each with its own script. testdata/format1 holds the script as the
// first releases of format 1 sent it; what it decides and stores is the format.

// first is a gateway of those releases.
type first struct {
	client *redis.Client
	text   string
}

func newFirst(t *testing.T) first {
	t.Helper()
	text := "#!lua\n"
	for _, name := range []string{"lib.lua", "apply.lua"} {
		part, err := os.ReadFile("testdata/format1/" + name)
		require.NoError(t, err)
		text += string(part)
	}
	client := redis.NewClient(&redis.Options{Addr: shared.Addr(), Protocol: 2, MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return first{client, text}
}

// apply is what those releases did with a step.
func (f first) apply(t *testing.T, scope ledger.Scope, step ledger.Step) ledger.Result {
	t.Helper()
	keys, args := firstWords(scope, step)
	reply, err := f.client.Eval(t.Context(), f.text, keys, args...).Slice()
	require.NoError(t, err)
	mark, body := reply[0].(string), reply[1].(string)
	res := ledger.Result{Applied: mark == "A" || mark == "R", Voided: mark == "V"}
	for b := body[8:]; b != ""; b = b[8:] {
		res.Counters = append(res.Counters, int64(binary.BigEndian.Uint64([]byte(b))))
	}
	if mark == "N" {
		res.Values = map[ledger.Key]ledger.Value{}
		pairs := reply[2].([]any)
		for ; len(pairs) > 0; pairs = pairs[2:] {
			name, v := pairs[0].(string)[len(tag(scope))+1:], pairs[1].(string)
			value := ledger.Value{Version: ledger.Version([]byte(v[:8])), Data: []byte(v[16:])}
			if value.Version == (ledger.Version{}) {
				value.Data = fmt.Append(nil, int64(binary.BigEndian.Uint64(value.Data)))
			}
			res.Values[ledger.Key{Kind: ledger.Kind(name[0]), ID: name[1:]}] = value
		}
	}
	return res
}

func firstWords(scope ledger.Scope, step ledger.Step) (keys []string, args []any) {
	millis := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMilli()
	}
	head := func(v ledger.Version, expires time.Time, data []byte) []byte {
		return append(binary.BigEndian.AppendUint64(v[:], uint64(millis(expires))), data...)
	}
	index := func(e ledger.Entry) string { return tag(scope) + "#z" + string([]byte{byte(e.Index)}) }
	keys = []string{tag(scope) + "#rows", tag(scope) + "#n" + string(step.Nonce[:])}
	args = []any{0, tag(scope) + ":", step.At.UnixMilli(), millis(step.Before), 1000, 12000, 62000, len(step.Expect)}
	for _, e := range step.Expect {
		keys, args = append(keys, valueKey(scope, e.Key)), append(args, string(e.Version[:]))
	}
	args = append(args, len(step.Delete))
	for _, k := range step.Delete {
		keys = append(keys, valueKey(scope, k))
	}
	args = append(args, len(step.Put))
	for _, p := range step.Put {
		keys = append(keys, valueKey(scope, p.Key))
		args = append(args, head(step.Nonce.Version(), p.Expires, p.Data), millis(p.Expires))
	}
	args = append(args, len(step.Add))
	for _, a := range step.Add {
		keys = append(keys, valueKey(scope, a.Key))
		args = append(args, head(ledger.Version{}, a.Expires, nil), binary.BigEndian.AppendUint64(nil, uint64(a.Delta)), millis(a.Expires))
	}
	args = append(args, len(step.Unindex))
	for _, e := range step.Unindex {
		keys, args = append(keys, index(e)), append(args, e.Member)
	}
	args = append(args, len(step.Index))
	for _, e := range step.Index {
		keys, args = append(keys, index(e)), append(args, e.Score.UnixMilli(), e.Member)
	}
	args = append(args, len(step.Rows))
	for _, row := range step.Rows {
		args = append(args, row)
	}
	args = append(args, len(step.Void))
	for _, n := range step.Void {
		keys = append(keys, tag(scope)+"#n"+string(n[:]))
	}
	args = append(args, len(step.Fetch))
	for _, f := range step.Fetch {
		follow := make([]byte, len(f.Follow))
		for i, k := range f.Follow {
			follow[i] = byte(k)
		}
		keys, args = append(keys, valueKey(scope, f.Key)), append(args, follow)
	}
	return keys, args
}

// TestFormat1 has the same random steps made by a gateway of the first release in
// one scope, by one of this release in another, and by both in turns in a third.
// All are answered alike, and leave the same bytes.
func TestFormat1(t *testing.T) {
	old, s := newFirst(t), open(t, redisstore.Options{URL: shared.URL(), Pipeline: true, Ack: "none"})
	for seed := rand.Uint64(); !sideBySide(t, old, s, seed); seed++ {
		t.Log("a step came too late for its own time somewhere, on a busy machine: once more")
	}
}

func sideBySide(t *testing.T, old first, s ledger.Store, seed uint64) (inTime bool) {
	t.Helper()
	t.Logf("seed %d", seed)
	scopes := [3]ledger.Scope{}
	for i := range scopes {
		scopes[i] = ledger.ScopeOf(fmt.Sprint(seed, i))
	}
	g := &steps{random: rand.New(rand.NewPCG(seed, 0)), versions: map[ledger.Key]ledger.Version{}}
	verdicts := map[string]int{}
	for i := 0; i < 400 || len(verdicts) < 4; i++ {
		require.Less(t, i, 4000, "applied, voided, refused with and without values: %v", verdicts)
		began := time.Now()
		step := g.next(s.Now())
		answers, notes := [3]ledger.Result{}, [3]string{}
		for at, scope := range scopes {
			if at == 0 || at == 2 && i%2 == 0 {
				answers[at] = old.apply(t, scope, step)
			} else {
				answers[at] = apply(t, s, scope, step)
			}
			answers[at].Now = time.Time{}
			notes[at] = old.noted(t, scope, step.Nonce)
			for _, n := range step.Void {
				notes[at] += " " + old.noted(t, scope, n)
			}
		}
		if time.Since(began) > ledger.Drift/2 {
			return false
		}
		require.Equal(t, answers[0], answers[1], "step %d: %+v", i, step)
		require.Equal(t, answers[0], answers[2], "step %d: %+v", i, step)
		require.Equal(t, notes[0], notes[1], "step %d: %+v", i, step)
		require.Equal(t, notes[0], notes[2], "step %d: %+v", i, step)
		g.learn(step, answers[0])
		verdicts[fmt.Sprint(answers[0].Applied, answers[0].Voided, len(answers[0].Values) > 0)]++
	}
	want := old.dump(t, scopes[0])
	require.Greater(t, len(want), 100)
	require.Equal(t, want, old.dump(t, scopes[1]))
	require.Equal(t, want, old.dump(t, scopes[2]))
	return true
}

// steps makes random ones that are often applied, over few keys.
type steps struct {
	random   *rand.Rand
	versions map[ledger.Key]ledger.Version
	nonces   []ledger.Nonce
	past     []ledger.Step
}

func (g *steps) some(most int, one func()) {
	for range g.random.IntN(most + 1) {
		one()
	}
}

func (g *steps) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "\x00\r\nA1}{$*\xff"[g.random.IntN(10)]
	}
	return b
}

func (g *steps) key(kind ledger.Kind) ledger.Key {
	return ledger.Key{Kind: kind, ID: strings.Repeat(string(rune('a'+g.random.IntN(6))), 16)}
}

// expires is never, long hence, or over.
func (g *steps) expires(now time.Time) time.Time {
	return []time.Time{{}, {}, now.Add(time.Hour), now.Add(time.Hour + time.Minute), now.Add(-time.Minute)}[g.random.IntN(5)]
}

func (g *steps) next(now time.Time) ledger.Step {
	if len(g.past) > 0 && g.random.IntN(12) == 0 {
		return g.past[g.random.IntN(len(g.past))]
	}
	step := ledger.Step{At: now}
	for i := range step.Nonce {
		step.Nonce[i] = byte(g.random.Uint32())
	}
	switch g.random.IntN(20) {
	case 0:
		step.At = now.Add(-time.Minute)
	case 1:
		step.Before = now.Add(-time.Second)
	case 2:
		step.Before = now.Add(time.Minute)
	}
	g.some(3, func() {
		k := g.key(ledger.Action)
		v := g.versions[k]
		if g.random.IntN(12) == 0 {
			v = ledger.Version{1}
		}
		step.Expect = append(step.Expect, ledger.Expect{Key: k, Version: v})
	})
	g.some(2, func() {
		step.Delete = append(step.Delete, g.key([]ledger.Kind{ledger.Action, ledger.Usage}[g.random.IntN(2)]))
	})
	g.some(4, func() {
		data := g.bytes(g.random.IntN(60))
		if g.random.IntN(2) == 0 {
			data = []byte(g.key(0).ID + g.key(0).ID)
		}
		step.Put = append(step.Put, ledger.Put{Key: g.key(ledger.Action), Data: data, Expires: g.expires(now)})
	})
	g.some(2, func() {
		step.Add = append(step.Add, ledger.Add{Key: g.key(ledger.Usage), Delta: g.random.Int64N(1<<40) - 1<<39, Expires: g.expires(now)})
	})
	entry := func() ledger.Entry {
		return ledger.Entry{Index: []ledger.Index{ledger.ByLease, ledger.ByHold}[g.random.IntN(2)], Score: now.Add(time.Duration(g.random.IntN(1000)) * time.Second), Member: string(g.bytes(2))}
	}
	g.some(2, func() { step.Unindex = append(step.Unindex, entry()) })
	g.some(3, func() { step.Index = append(step.Index, entry()) })
	g.some(2, func() { step.Rows = append(step.Rows, g.bytes(40)) })
	g.some(1, func() {
		if len(g.nonces) > 0 {
			step.Void = append(step.Void, g.nonces[g.random.IntN(len(g.nonces))])
		}
	})
	if g.random.IntN(8) == 0 { // one that will come to be sent when it is void
		late := step
		late.Nonce[0]++
		step.Void = append(step.Void, late.Nonce)
		g.past = append(g.past, late)
	}
	if g.random.IntN(2) == 0 {
		for _, e := range step.Expect {
			step.Fetch = append(step.Fetch, ledger.Fetch{Key: e.Key, Follow: []ledger.Kind{ledger.Action, ledger.Usage}[:g.random.IntN(3)]})
		}
		return step
	}
	g.some(3, func() {
		step.Fetch = append(step.Fetch, ledger.Fetch{Key: g.key(ledger.Action), Follow: []ledger.Kind{ledger.Usage}[:g.random.IntN(2)]})
	})
	return step
}

// learn keeps what later steps refer to.
func (g *steps) learn(step ledger.Step, res ledger.Result) {
	g.past, g.nonces = append(g.past, step), append(g.nonces, step.Nonce)
	g.past, g.nonces = g.past[max(0, len(g.past)-20):], g.nonces[max(0, len(g.nonces)-20):]
	if !res.Applied {
		return
	}
	for _, k := range step.Delete {
		delete(g.versions, k)
	}
	for _, p := range step.Put {
		g.versions[p.Key] = step.Nonce.Version()
		if !p.Expires.IsZero() && p.Expires.Before(step.At) {
			delete(g.versions, p.Key)
		}
	}
}

// noted is what a scope holds under a nonce, but for the time of the run.
func (f first) noted(t *testing.T, scope ledger.Scope, n ledger.Nonce) string {
	t.Helper()
	k := tag(scope) + "#n" + string(n[:])
	v, err := f.client.Get(t.Context(), k).Result()
	if errors.Is(err, redis.Nil) {
		return ""
	}
	require.NoError(t, err)
	left, err := f.client.PTTL(t.Context(), k).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, left, map[byte]time.Duration{'A': 12 * time.Second, 'V': 62 * time.Second}[v[0]])
	require.Positive(t, left)
	return v[:1] + v[min(9, len(v)):]
}

// dump is all that a scope holds but for nonces, by key without the tag: what DUMP
// says, and when it ends. Rows come without the time of the run.
func (f first) dump(t *testing.T, scope ledger.Scope) map[string]string {
	t.Helper()
	keys, err := f.client.Keys(t.Context(), tag(scope)+"*").Result()
	require.NoError(t, err)
	all := map[string]string{}
	for _, k := range keys {
		name := k[len(tag(scope)):]
		switch {
		case strings.HasPrefix(name, "#n"):
		case name == "#rows":
			rows, err := f.client.XRange(t.Context(), k, "-", "+").Result()
			require.NoError(t, err)
			for i, row := range rows {
				require.Len(t, row.Values, 1)
				all[fmt.Sprint(name, i)] = row.Values["d"].(string)
			}
		default:
			v, err := f.client.Dump(t.Context(), k).Result()
			require.NoError(t, err)
			ends, err := f.client.PExpireTime(t.Context(), k).Result()
			require.NoError(t, err)
			all[name] = fmt.Sprint(v, ends)
		}
	}
	return all
}
