package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// TestGroupsAreAsStepsOneByOne: whatever waits together comes to what it would have
// come to alone, one after another, with whatever memory there is; and so does the
// folder after a crash.
func TestGroupsAreAsStepsOneByOne(t *testing.T) {
	t.Parallel()
	for seed := range uint64(modelLives) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { liveByModel(t, seed) })
	}
}

const modelLives = 12

func liveByModel(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 11))
	disk := vfs.NewCrashableMem()
	clock := time.UnixMilli(1_800_000_000_000)
	opts := Options{FS: disk, Clock: func() time.Time { return clock }}
	s, err := OpenSmall("store", opts)
	require.NoError(t, err)
	scopes := sharers(s, 3)
	s.Remember([]int{0, 800, 3000, memoryMost}[seed%4])
	models := map[ledger.Scope]*model{}
	for _, scope := range scopes {
		models[scope] = newModel()
	}
	for range 60 {
		clock = clock.Add(time.Duration(random.IntN(5)) * time.Millisecond)
		if random.IntN(12) == 0 {
			require.NoError(t, s.Flush())
		}
		together := make([]asked, 1+random.IntN(20))
		for i := range together {
			scope := scopes[random.IntN(len(scopes))]
			together[i] = models[scope].ask(random, s, scope)
		}
		for _, got := range askTogether(t, s, together) {
			require.NoError(t, got)
		}
		stale, err := s.Stale()
		require.NoError(t, err)
		require.Zero(t, stale)
	}
	killed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
	require.NoError(t, s.Close())
	opts.FS = killed
	s, err = OpenSmall("store", opts)
	require.NoError(t, err)
	for scope, m := range models {
		require.NoError(t, m.compare(t.Context(), s, scope))
	}
	require.NoError(t, s.Close())
}

// sharers are scopes of one stripe.
func sharers(s *Store, n int) (scopes []ledger.Scope) {
	for i := 0; len(scopes) < n; i++ {
		scope := ledger.ScopeOf(strconv.Itoa(i))
		if len(scopes) == 0 || s.stripe(scope) == s.stripe(scopes[0]) {
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// asked is a call of a scope. In its turn it is made, and compared with what the model
// comes to in the same turn: an error is that they differ.
type asked struct {
	scope ledger.Scope
	do    func(*group) (finish func(error) error, err error)
}

func askTogether(t *testing.T, s *Store, all []asked) []error {
	t.Helper()
	release := s.Hold(all[0].scope)
	tasks := make([]*task, len(all))
	for i, a := range all {
		s.calls.enter()
		tk := &task{ctx: t.Context(), done: make(chan struct{})}
		tk.begin = func(g *group) (err error) {
			tk.finish, err = a.do(g)
			return err
		}
		tasks[i] = tk
		s.stripe(a.scope).enter(tk)
	}
	release()
	errs := make([]error, len(all))
	for i, tk := range tasks {
		<-tk.done
		errs[i] = tk.err
	}
	return errs
}

type modelValue struct {
	version ledger.Version
	data    string
	counter bool
	sum     int64
	expires int64
}

// model is a scope as the contract has it.
type model struct {
	values  map[string]modelValue
	rows    []string
	entries map[string]int64
	results map[ledger.Nonce]ledger.Result
	steps   []ledger.Step // some that were asked for
}

func newModel() *model {
	return &model{values: map[string]modelValue{}, entries: map[string]int64{}, results: map[ledger.Nonce]ledger.Result{}}
}

func (m *model) at(id string, now int64) (modelValue, bool) {
	v, ok := m.values[id]
	return v, ok && (v.expires == 0 || now < v.expires)
}

func modelKey(id string) ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: id} }

func (m *model) fetched(now int64, fetch []ledger.Fetch) map[ledger.Key]ledger.Value {
	values := map[ledger.Key]ledger.Value{}
	for _, f := range fetch {
		v, ok := m.at(f.Key.ID, now)
		switch {
		case ok && v.counter:
			values[f.Key] = ledger.Value{Data: []byte(strconv.FormatInt(v.sum, 10))}
		case ok:
			values[f.Key] = ledger.Value{Version: v.version, Data: []byte(v.data)}
		}
	}
	return values
}

var errModelFails = errors.New("the step is to fail")

// apply is the contract, of a step alone.
func (m *model) apply(step ledger.Step, now time.Time) (ledger.Result, error) {
	if r, ok := m.results[step.Nonce]; ok {
		if r.Voided {
			r.Now = now
		}
		return r, nil
	}
	ms := now.UnixMilli()
	for _, x := range step.Expect {
		v, ok := m.at(x.Key.ID, ms)
		if x.Version == (ledger.Version{}) && ok || x.Version != (ledger.Version{}) && (!ok || v.counter || v.version != x.Version) {
			return ledger.Result{Snapshot: ledger.Snapshot{Now: now, Values: m.fetched(ms, step.Fetch)}}, nil
		}
	}
	values := maps.Clone(m.values)
	kept := m.values
	m.values = values
	for _, k := range step.Delete {
		delete(values, k.ID)
	}
	for _, p := range step.Put {
		values[p.Key.ID] = modelValue{version: step.Nonce.Version(), data: string(p.Data), expires: expiry(p.Expires)}
	}
	var counters []int64
	for _, a := range step.Add {
		v, ok := m.at(a.Key.ID, ms)
		if !ok {
			v = modelValue{counter: true}
		}
		if !v.counter || a.Delta > 0 && v.sum > math.MaxInt64-a.Delta {
			m.values = kept
			return ledger.Result{}, errModelFails
		}
		v.sum, v.expires = v.sum+a.Delta, expiry(a.Expires)
		values[a.Key.ID] = v
		counters = append(counters, v.sum)
	}
	for _, e := range step.Unindex {
		delete(m.entries, e.Member)
	}
	for _, e := range step.Index {
		m.entries[e.Member] = e.Score.UnixMilli()
	}
	for _, r := range step.Rows {
		m.rows = append(m.rows, string(r))
	}
	r := ledger.Result{Snapshot: ledger.Snapshot{Now: now}, Applied: true, Counters: counters}
	m.results[step.Nonce] = r
	for _, n := range step.Void {
		if done, ok := m.results[n]; !ok || done.Voided {
			m.results[n] = ledger.Result{Voided: true}
		}
	}
	return r, nil
}

// ask makes up a call.
func (m *model) ask(random *rand.Rand, s *Store, scope ledger.Scope) asked {
	switch random.IntN(12) {
	case 0:
		return asked{scope, func(g *group) (func(error) error, error) { return m.read(g, scope) }}
	case 1:
		limit := random.Int64N(10)
		return asked{scope, func(g *group) (func(error) error, error) { return nil, m.trimTo(g, scope, limit) }}
	}
	if random.IntN(12) == 0 {
		return asked{scope, func(g *group) (func(error) error, error) { clear(g.stripe.tails); return nil, nil }}
	}
	if len(m.steps) > 0 && random.IntN(6) == 0 {
		step := m.steps[random.IntN(len(m.steps))] // again
		return asked{scope, func(g *group) (func(error) error, error) { return nil, m.check(g, scope, step) }}
	}
	step := m.step(random, s)
	m.steps = append(m.steps, step)
	guess := random.IntN(3)
	return asked{scope, func(g *group) (func(error) error, error) {
		for i := range step.Expect { // mostly what stands, seen in its turn
			if v, ok := m.at(step.Expect[i].Key.ID, step.At.UnixMilli()); guess > 0 && ok {
				step.Expect[i].Version = v.version
			}
		}
		return nil, m.check(g, scope, step)
	}}
}

func (m *model) step(random *rand.Rand, s *Store) ledger.Step {
	id := func() ledger.Key { return modelKey(string(rune('a' + random.IntN(6)))) }
	ends := func() time.Time {
		if random.IntN(3) > 0 {
			return time.Time{}
		}
		return s.Now().Add(time.Duration(random.IntN(20)-2) * time.Millisecond)
	}
	step := ledger.Step{Nonce: ledger.NewNonce(), At: s.Now()}
	for range random.IntN(3) {
		step.Expect = append(step.Expect, ledger.Expect{Key: id()})
	}
	for range random.IntN(2) {
		step.Delete = append(step.Delete, id())
	}
	for range random.IntN(3) {
		step.Put = append(step.Put, ledger.Put{Key: id(), Data: []byte(strings.Repeat("d", random.IntN(60))), Expires: ends()})
	}
	for range random.IntN(3) {
		k := modelKey(string(rune('m' + random.IntN(3))))
		if random.IntN(12) == 0 {
			k = id() // perhaps a value
		}
		delta := int64(random.IntN(100))
		if random.IntN(10) == 0 {
			delta = math.MaxInt64 - 50
		}
		step.Add = append(step.Add, ledger.Add{Key: k, Delta: delta, Expires: ends()})
	}
	for range random.IntN(3) {
		step.Rows = append(step.Rows, fmt.Appendf(nil, "%x", random.Uint64()))
	}
	if random.IntN(4) == 0 {
		step.Index = []ledger.Entry{{Index: ledger.ByName, Score: time.UnixMilli(random.Int64N(100)), Member: fmt.Sprint(random.Uint64())}}
	}
	if len(m.steps) > 0 && random.IntN(5) == 0 {
		step.Void = append(step.Void, m.steps[random.IntN(len(m.steps))].Nonce)
	}
	if random.IntN(8) == 0 { // of one to come
		next := ledger.NewNonce()
		step.Void = append(step.Void, next)
		m.steps = append(m.steps, ledger.Step{Nonce: next, At: s.Now(), Rows: [][]byte{[]byte("void")}, Put: []ledger.Put{{Key: id(), Data: []byte("void")}}})
	}
	for range random.IntN(3) {
		step.Fetch = append(step.Fetch, ledger.Fetch{Key: id()})
	}
	return step
}

func (m *model) check(g *group, scope ledger.Scope, step ledger.Step) error {
	want, fails := m.apply(step, g.store.clock.now())
	got, err := g.apply(scope, &step)
	if (err != nil) != (fails != nil) {
		return fmt.Errorf("error %w, expected %w", err, fails)
	}
	if fails != nil {
		return nil //nolint:nilerr // both fail, as they should
	}
	same := got.Applied == want.Applied && got.Voided == want.Voided && slices.Equal(got.Counters, want.Counters)
	if !want.Voided {
		same = same && got.Now.Equal(want.Now)
	}
	if !same || !sameValues(got.Values, want.Values) {
		return fmt.Errorf("came to %+v, expected %+v", got, want)
	}
	return nil
}

func sameValues(a, b map[ledger.Key]ledger.Value) bool {
	return maps.EqualFunc(a, b, func(x, y ledger.Value) bool {
		return x.Version == y.Version && string(x.Data) == string(y.Data)
	})
}

// read is of every value, in its turn, and looked at later.
func (m *model) read(g *group, scope ledger.Scope) (func(error) error, error) {
	fetch := allFetches()
	if err := g.append(); err != nil {
		return nil, err
	}
	now, at := g.store.clock.now(), g.store.db.NewSnapshot()
	want := m.fetched(now.UnixMilli(), fetch)
	return func(durable error) error {
		values, err := fetchValues(at, scope, fetch, now.UnixMilli())
		if err := errors.Join(durable, err, at.Close()); err != nil {
			return err
		}
		if !sameValues(values, want) {
			return fmt.Errorf("read %+v, expected %+v", values, want)
		}
		return nil
	}, nil
}

func allFetches() (fetch []ledger.Fetch) {
	for _, id := range "abcdefmno" {
		fetch = append(fetch, ledger.Fetch{Key: modelKey(string(id))})
	}
	return fetch
}

// trimTo removes entries below a score.
func (m *model) trimTo(g *group, scope ledger.Scope, before int64) error {
	prefix := indexPrefix(scope, ledger.ByName)
	want := 0
	for member, score := range m.entries {
		if score < before {
			delete(m.entries, member)
			want++
		}
	}
	n, err := g.trim(span{lower: prefix, upper: appendMillis(slices.Clone(prefix), before), limit: trimChunk})
	if err == nil && n != want {
		err = fmt.Errorf("trimmed %d, expected %d", n, want)
	}
	return err
}

// compare is of everything.
func (m *model) compare(ctx context.Context, s *Store, scope ledger.Scope) error {
	snap, err := s.Read(ctx, scope, allFetches()...)
	if err != nil {
		return err
	}
	if want := m.fetched(snap.Now.UnixMilli(), allFetches()); !sameValues(snap.Values, want) {
		return fmt.Errorf("values %+v, expected %+v", snap.Values, want)
	}
	rows, err := s.Rows(ctx, scope, ledger.RowRange{Limit: 1 << 20})
	if err != nil {
		return err
	}
	got := make([]string, len(rows))
	for i, r := range rows {
		got[i] = string(r.Data)
	}
	if !slices.Equal(got, m.rows) {
		return fmt.Errorf("rows %v, expected %v", got, m.rows)
	}
	entries, err := s.Entries(ctx, scope, ledger.EntryRange{Index: ledger.ByName, Limit: 1 << 20})
	if err != nil {
		return err
	}
	members := map[string]int64{}
	for _, e := range entries {
		members[e.Member] = e.Score.UnixMilli()
	}
	if !maps.Equal(members, m.entries) || len(entries) != len(members) {
		return fmt.Errorf("entries %v, expected %v", members, m.entries)
	}
	return nil
}
