package archivetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

func sealsOnce(f *fixture) {
	s := f.sealer(f.Store, f.storage)
	f.write(f.Store, 3)
	done, err := s.Seal(f.Context(), f.scope, false)
	require.NoError(f, err)
	require.Zero(f, done.Rows, "neither many nor old")
	f.write(f.Store, 2)
	done, err = s.Seal(f.Context(), f.scope, false)
	require.NoError(f, err)
	require.Equal(f, 4, done.Rows, "as many as make a segment")
	f.sealAll(s)
	f.whole(1)
	require.Len(f, f.entries(), 2)
	require.Len(f, f.hot(), 5, "they stay in the store")
	require.Equal(f, f.hot()[4].Cursor, f.entries()[1].Cursor)

	r := f.reader()
	may, err := r.MayHold(f.Context(), f.entries()[0], []string{"action_id=act_2"})
	require.NoError(f, err)
	require.True(f, may)
	may, err = r.MayHold(f.Context(), f.entries()[0], []string{"action_id=act_5"})
	require.NoError(f, err)
	require.False(f, may)
	f.storage.Damage(f.entries()[1].Terms.Name, func([]byte) []byte { return []byte{1, 7, 0, 0, 0, 0, 0, 0, 0, 0} })
	may, err = r.MayHold(f.Context(), f.entries()[1], []string{"action_id=act_5"})
	require.NoError(f, err)
	require.True(f, may, "a filter that was changed hides nothing")
}

// overtaken: another sealer is faster at the last moment, before the step that
// records the segment.
func overtaken(f *fixture) {
	fast := f.sealer(f.Store, f.storage)
	once := sync.Once{}
	slow := f.sealer(&hooked{Store: f.Store, before: func(step ledger.Step) {
		if movesHead(step) {
			once.Do(func() {
				done, err := fast.Seal(f.Context(), f.scope, false)
				require.NoError(f, err)
				require.Equal(f, 4, done.Rows)
			})
		}
	}}, f.storage)
	f.write(f.Store, 6)
	done, err := slow.Seal(f.Context(), f.scope, false)
	require.NoError(f, err)
	require.Zero(f, done.Rows)
	require.True(f, done.Again())
	require.Len(f, f.storage.Names(), 3, "one segment, its filter and the archive's id")
	f.sealAll(slow)
	f.whole(1)
}

func movesHead(step ledger.Step) bool {
	return slices.ContainsFunc(step.Put, func(p ledger.Put) bool { return p.Key.ID == "head" })
}

// hooked is a store that tells of a step before it makes it.
type hooked struct {
	ledger.Store
	before func(step ledger.Step)
}

func (h *hooked) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	h.before(step)
	return h.Store.Apply(ctx, scope, step)
}

// twoSealers: two replicas seal the same rows while others write.
func twoSealers(f *fixture) {
	peer := f.Store
	if f.Peer != nil {
		peer = f.Peer(f.T)
	}
	const writers, each = 3, 40
	stop := make(chan struct{})
	var sealing, writing sync.WaitGroup
	for _, store := range []ledger.Store{f.Store, peer} {
		s := f.sealer(store, f.storage)
		sealing.Go(func() {
			for {
				if _, err := s.Seal(f.Context(), f.scope, false); err != nil && !errors.Is(err, ledger.ErrUnavailable) {
					f.Error(err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				step := ledger.Step{Nonce: ledger.NewNonce(), At: f.Store.Now()}
				audit.Append(&step, audit.Row{Event: audit.Claimed, Tenant: f.tenant, ActionID: fmt.Sprintf("act_%d.%d", w, i)})
				res, err := f.Store.Apply(f.Context(), f.scope, step)
				if err != nil || !res.Applied {
					f.Errorf("not written: %v", err)
					return
				}
			}
		})
	}
	writing.Wait()
	close(stop)
	sealing.Wait()
	f.sealAll(f.sealer(f.Store, f.storage))
	got, want := f.sealed(), f.hot()
	require.Len(f, want, writers*each)
	require.Len(f, got, len(want))
	for i := range want {
		require.Equal(f, want[i].Cursor, got[i].Cursor)
		require.Equal(f, want[i].Data, got[i].Data)
		require.True(f, want[i].At.Equal(got[i].At))
	}
	report, err := f.reader().Verify(f.Context(), f.scope)
	require.NoError(f, err)
	require.True(f, report.Whole(), "%v", report.Findings)
	require.Equal(f, 2*len(f.entries())+1, len(f.storage.Names()), "losers have removed what they stored")
}

// mortal counts what a process does, and dies at one point of it: from then on
// nothing it asks for is done.
type mortal struct {
	mu    sync.Mutex
	calls int
	dieAt int  // at this call
	after bool // once it was done
	trace []string
}

var errDead = errors.New("the process is dead")

// step does one call, unless the process is dead or dies of it.
func (m *mortal) step(what string, do func() error) error {
	m.mu.Lock()
	m.calls++
	n := m.calls
	m.trace = append(m.trace, what)
	m.mu.Unlock()
	switch {
	case n < m.dieAt || m.dieAt == 0:
		return do()
	case n == m.dieAt && m.after:
		_ = do()
	}
	return errDead
}

type mortalStore struct {
	ledger.Store
	*mortal
}

func (m mortalStore) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (res ledger.Result, err error) {
	err = m.step("apply", func() (err error) { res, err = m.Store.Apply(ctx, scope, step); return err })
	return res, err
}

func (m mortalStore) Rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) (rows []ledger.Row, err error) {
	err = m.step("rows", func() (err error) { rows, err = m.Store.Rows(ctx, scope, r); return err })
	return rows, err
}

func (m mortalStore) TrimRows(ctx context.Context, scope ledger.Scope, upTo string) error {
	return m.step("trim rows", func() error { return m.Store.TrimRows(ctx, scope, upTo) })
}

type mortalStorage struct {
	*Memory
	*mortal
}

func (m mortalStorage) Put(ctx context.Context, name string, data []byte) error {
	return m.step("put", func() error { return m.Memory.Put(ctx, name, data) })
}

func (m mortalStorage) Get(ctx context.Context, name string) (data []byte, err error) {
	err = m.step("get", func() (err error) { data, err = m.Memory.Get(ctx, name); return err })
	return data, err
}

func (m mortalStorage) Delete(ctx context.Context, name string) error {
	return m.step("delete", func() error { return m.Memory.Delete(ctx, name) })
}

func (m mortalStorage) List(ctx context.Context, prefix string, limit int) (names []string, err error) {
	err = m.step("list", func() (err error) { names, err = m.Memory.List(ctx, prefix, limit); return err })
	return names, err
}

// killedAnywhere kills a sealer before and after each call it makes while it
// seals, trims and lets a segment go; another one goes on where it died.
func killedAnywhere(f *fixture) {
	f.sealAll(f.sealer(f.Store, f.storage)) // the archive is made
	var steps []string
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			m := &mortal{dieAt: at, after: after}
			if f.live(m) {
				steps = m.trace
				break
			}
		}
	}
	for _, what := range []string{"put", "get", "apply", "rows", "trim rows", "list", "delete"} {
		require.Contains(f, steps, what, "the life that is killed has every kind of call")
	}
}

// live is a whole life of a sealer: it seals three segments of which the first is
// old, trims it and lets it go. It says whether it survived.
func (f *fixture) live(m *mortal) bool {
	f.Helper()
	f.newScope()
	f.keep = 10 * 24 * time.Hour
	f.write(f.Store, 5)
	f.sealAll(f.sealer(f.Store, f.storage))
	f.advance(11 * 24 * time.Hour)
	f.write(f.Store, 5)
	f.advance(2 * hot)
	f.write(f.Store, 2)
	f.advance(2 * time.Minute)

	dying := f.sealer(mortalStore{f.Store, m}, mortalStorage{f.storage, m})
	err := func() error {
		for {
			done, err := dying.Seal(f.Context(), f.scope, false)
			if err != nil {
				return err
			}
			if done.Rows == 0 && !done.Again() {
				return dying.MaintainScope(f.Context(), f.scope)
			}
		}
	}()
	if err != nil {
		require.ErrorIs(f, err, errDead)
	}
	// Whatever it left, every row is in the store or in the archive.
	f.complete(err == nil)

	next := f.sealer(f.Store, f.storage)
	f.sealAll(next)
	require.NoError(f, next.MaintainScope(f.Context(), f.scope))
	f.whole(6) // the first five were let go
	f.complete(true)
	require.Len(f, f.hot(), 3, "the others are old and sealed")
	return err == nil
}

// complete requires that no row behind those whose retention is over is missing.
func (f *fixture) complete(expired bool) {
	f.Helper()
	have := map[string]bool{}
	for _, r := range f.sealed() {
		have[string(r.Data)] = true
	}
	for _, r := range f.hot() {
		have[string(r.Data)] = true
	}
	first := 6
	if !expired {
		first = f.written - len(have) + 1
		require.LessOrEqual(f, first, 6)
	}
	for n := first; n <= f.written; n++ {
		found := false
		for data := range have {
			found = found || strings.Contains(data, fmt.Sprintf(`"act_%d"`, n))
		}
		require.True(f, found, "row %d", n)
	}
}

// deaf is a store that does what it is asked and does not say so.
type deaf struct {
	ledger.Store
	deaf func(step ledger.Step) bool
}

func (d *deaf) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	res, err := d.Store.Apply(ctx, scope, step)
	if err == nil && d.deaf(step) {
		return ledger.Result{}, ledger.ErrUnavailable
	}
	return res, err
}

// doubtfulStep: a segment may have been recorded although the store did not say
// so; its objects must stay.
func doubtfulStep(f *fixture) {
	f.write(f.Store, 4)
	ctx, cancel := context.WithCancel(f.Context())
	store := &deaf{Store: f.Store, deaf: func(step ledger.Step) bool {
		if movesHead(step) {
			cancel() // so that it is not asked again
		}
		return movesHead(step)
	}}
	_, err := f.sealer(store, f.storage).Seal(ctx, f.scope, false)
	require.ErrorIs(f, err, ledger.ErrUnavailable)
	f.sealAll(f.sealer(f.Store, f.storage))
	f.whole(1)
	require.Len(f, f.entries(), 1)

	// One that hears the answer to its repeat goes on as if nothing had been.
	f.write(f.Store, 4)
	once := sync.Once{}
	store.deaf = func(ledger.Step) (yes bool) {
		once.Do(func() { yes = true })
		return yes
	}
	done, err := f.sealer(store, f.storage).Seal(f.Context(), f.scope, false)
	require.NoError(f, err)
	require.Equal(f, 4, done.Rows)
	f.whole(1)
}

// lyingStorage: a storage that says it has stored what it has not.
func lyingStorage(f *fixture) {
	lies := map[string]func(name string, data []byte) []byte{
		"keeps nothing":     func(string, []byte) []byte { return nil },
		"keeps half":        func(_ string, data []byte) []byte { return data[:len(data)/2] },
		"changes a byte":    func(_ string, data []byte) []byte { data[len(data)-1] ^= 1; return data },
		"keeps no filter":   func(name string, data []byte) []byte { return unless(strings.HasSuffix(name, ".terms"), data) },
		"keeps no segments": func(name string, data []byte) []byte { return unless(strings.HasSuffix(name, ".zst"), data) },
	}
	f.sealAll(f.sealer(f.Store, f.storage))
	f.write(f.Store, 4)
	f.sealAll(f.sealer(f.Store, f.storage))
	f.write(f.Store, 4)
	f.advance(2 * hot)
	for name, lie := range lies {
		f.storage.Lie(lie)
		s := f.sealer(f.Store, f.storage)
		_, err := s.Seal(f.Context(), f.scope, false)
		require.ErrorIs(f, err, archive.ErrDamaged, name)
		require.NoError(f, s.MaintainScope(f.Context(), f.scope))
		require.Len(f, f.entries(), 1, name)
		require.Len(f, f.hot(), 4, "only the rows that are in the archive are gone: %s", name)
	}
	f.storage.Lie(nil)
	f.sealAll(f.sealer(f.Store, f.storage))
	f.whole(1)
}

func unless(no bool, data []byte) []byte {
	if no {
		return nil
	}
	return data
}
