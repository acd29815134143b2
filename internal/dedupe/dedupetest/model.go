package dedupetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
)

func modelCases() []testCase {
	return []testCase{{"random lives follow the model", randomLives}}
}

// randomLives plays random requests, settlements and waits and compares every
// answer with a model of the rules that is small enough to be read.
func randomLives(f *fixture) {
	rapid.Check(f.T, func(t *rapid.T) {
		m := &model{T: t, f: f, bound: map[identity.Identity]*life{}}
		m.f.scope = ledger.ScopeOf(rand.Text())
		m.Repeat(map[string]func(*rapid.T){
			"claim": m.claim, "settle": m.settle, "renew": m.renew, "resolve": m.resolve,
			"wait": m.wait, "sweep": m.sweep, "": m.places,
		})
	})
}

// life is what the model knows of one action.
type life struct {
	handle                   *dedupe.Handle
	id                       dedupe.ActionID
	request                  request
	state                    dedupe.State
	lost                     bool // the owner went silent
	byPerson, released       bool
	answer                   string
	lease, window, hold, may time.Time // ends; may: until when the owner may send
}

func (l *life) over(now time.Time) bool {
	switch l.state {
	case dedupe.InFlight:
		return false
	case dedupe.Held:
		return !now.Before(l.hold)
	case dedupe.Succeeded, dedupe.Refused:
		return !now.Before(l.window)
	default:
		return true
	}
}

// lapse notices a lease that is over.
func (l *life) lapse(now time.Time) {
	if l.state == dedupe.InFlight && !now.Before(l.lease) {
		l.state, l.lost = dedupe.Held, true
	}
}

type model struct {
	*rapid.T
	f     *fixture
	lives []*life
	bound map[identity.Identity]*life
}

// now is the store's clock: the model never waits to within seconds of an end.
func (m *model) now() time.Time {
	snap, err := m.f.Store.Read(m.f.Context(), m.f.scope)
	require.NoError(m, err)
	return snap.Now
}

func (m *model) claim(t *rapid.T) {
	r := request{
		key:  rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(t, "key"),
		body: rapid.SampledFrom([]string{"x", "x", "y"}).Draw(t, "body"),
	}
	var opts []option
	retry, twice := rapid.IntRange(0, 3).Draw(t, "retry_refused") == 0, rapid.IntRange(0, 4).Draw(t, "allow_duplicate") == 0
	may := rapid.IntRange(0, 5).Draw(t, "may") > 0
	if retry {
		opts = append(opts, retryRefused)
	}
	if twice {
		opts = append(opts, allowDuplicate)
	}
	if !may {
		opts = append(opts, mayNotAcquire)
	}
	cl := m.f.newClaim(r, opts...)
	var got dedupe.Claimed
	var known bool
	var err error
	if rapid.Bool().Draw(t, "remembered") {
		got, known, err = m.f.claims.Replay(m.f.Context(), cl)
		require.NoError(t, err)
	}
	if !known {
		got, err = m.f.claims.Claim(m.f.Context(), cl)
		require.NoError(t, err)
	}
	before := m.bound[r.identity()]
	want := m.verdict(r, got, retry, twice, may)
	t.Logf("%s", got.Verdict)
	require.Equal(t, want, got.Verdict, "%+v", r)
	if old := before; old != nil && old != m.bound[r.identity()] || want == dedupe.Acquired {
		if old != nil && old.request.identity() == r.identity() && old.state == dedupe.Held {
			old.state = dedupe.Lapsed // it was over, and a claim noticed
		}
	}
	if want == dedupe.Acquired {
		rec := got.Record
		l := &life{handle: got.Handle, id: rec.ID, request: r, state: dedupe.InFlight,
			lease: rec.LeaseEnd, window: rec.WindowEnd, hold: rec.HoldUntil, may: rec.Deadline}
		m.lives, m.bound[r.identity()] = append(m.lives, l), l
	}
}

// verdict is the claim order, in the words of the design.
func (m *model) verdict(r request, got dedupe.Claimed, retry, twice, may bool) dedupe.Verdict {
	b, now := m.bound[r.identity()], got.Now
	own := b != nil && b.request.identity() == r.identity()
	if b != nil && !own && !now.Before(b.hold.Add(time.Hour)) {
		b = nil // being bound to another's action ends an hour after its hold
	}
	if b != nil && !b.over(now) { // 1
		switch {
		case b.request.fingerprint() != r.fingerprint():
			return dedupe.KeyReused // 2
		case b.state.Unsettled() && (own || !twice): // 3, 4
			b.lapse(now)
			require.Equal(m, b.id, got.Record.ID)
			switch {
			case !own:
				return dedupe.Twin
			case b.state == dedupe.Held:
				return dedupe.OnHold
			default:
				return dedupe.Busy
			}
		case b.state.Unsettled():
		case b.state == dedupe.Refused && retry:
		default:
			require.Equal(m, b.id, got.Record.ID)
			require.Equal(m, b.answer, string(got.Answer), "every replay has the first answer")
			return dedupe.Replayed
		}
	}
	if !twice { // 5
		twins := slices.DeleteFunc(slices.Clone(m.lives), func(l *life) bool {
			return !l.state.Unsettled() || l.over(now) || l.request.fingerprint() != r.fingerprint() || l.request.identity() == r.identity()
		})
		if len(twins) > 0 {
			i := slices.IndexFunc(twins, func(l *life) bool { return got.Record != nil && l.id == got.Record.ID })
			require.GreaterOrEqual(m, i, 0, "a twin is named: %v", got.Verdict)
			m.bound[r.identity()] = twins[i]
			return dedupe.Twin
		}
	}
	if !may {
		return dedupe.WouldAcquire // 7
	}
	return dedupe.Acquired // 8
}

// places: an unsettled action stands in its indexes, at what its record says, and
// nothing stands anywhere else.
func (m *model) places(t *rapid.T) {
	var want, have []string
	say := func(index ledger.Index, score time.Time, member string) string {
		return fmt.Sprintf("%c %d %x", index, score.UnixMilli(), member)
	}
	for _, l := range m.lives {
		if l.state != dedupe.InFlight && l.state != dedupe.Held {
			continue
		}
		found, err := m.f.claims.Get(m.f.Context(), m.f.scope, l.id)
		require.NoError(t, err)
		switch r := found.Record; r.State {
		case dedupe.InFlight:
			want = append(want, say(ledger.ByLease, r.LeaseEnd, string(r.ID[:])))
		case dedupe.Held:
			want = append(want, say(ledger.ByHold, r.HoldUntil, string(r.ID[:])))
			if !r.NextCheck.IsZero() {
				want = append(want, say(ledger.ByCheck, r.NextCheck, string(r.ID[:])))
			}
		default: // settled by what the model has not noticed yet
		}
	}
	for _, index := range []ledger.Index{ledger.ByLease, ledger.ByHold, ledger.ByCheck} {
		entries, err := m.f.Store.Entries(m.f.Context(), m.f.scope, ledger.EntryRange{Index: index, Limit: 1000})
		require.NoError(t, err)
		for _, e := range entries {
			have = append(have, say(index, e.Score, e.Member))
		}
	}
	require.ElementsMatch(t, want, have)
}

func (m *model) pick(t *rapid.T) *life {
	if len(m.lives) == 0 {
		t.Skip("nothing was claimed yet")
	}
	return rapid.SampledFrom(m.lives).Draw(t, "life")
}

func (m *model) settle(t *rapid.T) {
	l := m.pick(t)
	to := rapid.SampledFrom([]dedupe.State{dedupe.Succeeded, dedupe.Succeeded, dedupe.Refused, dedupe.Held, dedupe.NotDone}).Draw(t, "to")
	answer := ""
	if to == dedupe.Succeeded {
		answer = fmt.Sprint("answer ", len(m.lives), " ", rapid.IntRange(0, 999).Draw(t, "answer"))
	}
	known := *l.handle.Record
	rec, err := m.f.claims.Settle(m.f.Context(), l.handle, settlement(to, answer))
	if to == dedupe.Held && known.State == dedupe.Held && !known.OwnerLost {
		require.NoError(t, err, "the owner says again that it knows nothing")
		return
	}
	switch {
	case l.state == dedupe.Held && to == dedupe.Held:
		require.NoError(t, err)
		l.lost = false // it is here after all, and knows no more
	case l.state == dedupe.Held && to == dedupe.NotDone && !l.lost:
		require.ErrorIs(t, err, dedupe.ErrLate)
	case l.state.Unsettled():
		require.NoError(t, err)
		l.state, l.answer, l.lost, l.released = to, answer, false, to == dedupe.NotDone
	case l.byPerson, l.state == dedupe.Lapsed:
		require.ErrorIs(t, err, dedupe.ErrLate)
	default:
		require.NoError(t, err, "the same settle again") // changes nothing
	}
	if err == nil {
		require.Equal(t, l.state, rec.State)
	}
}

func (m *model) renew(t *rapid.T) {
	l, now := m.pick(t), m.now()
	err := m.f.claims.Renew(m.f.Context(), l.handle)
	if l.state == dedupe.InFlight && now.Before(l.lease) {
		require.NoError(t, err)
		l.lease = l.handle.Record.LeaseEnd
		return
	}
	require.ErrorIs(t, err, dedupe.ErrLeaseLost)
}

func (m *model) resolve(t *rapid.T) {
	l, now := m.pick(t), m.now()
	to := rapid.SampledFrom([]dedupe.State{dedupe.Succeeded, dedupe.NotDone}).Draw(t, "to")
	answer := ""
	if to == dedupe.Succeeded {
		answer = fmt.Sprint("found ", len(m.lives))
	}
	_, err := m.f.resolveID(l.id, to, answer)
	l.lapse(now)
	var early *dedupe.StillPossibleError
	switch {
	case l.state != dedupe.Held || l.over(now):
		require.ErrorIs(t, err, dedupe.ErrNotHeld)
	case errors.As(err, &early):
		require.True(t, now.Before(early.Until))
	default:
		require.NoError(t, err)
		require.False(t, l.lost && now.Before(l.may), "its owner might have sent it yet")
		l.state, l.answer, l.byPerson = to, answer, true
	}
}

func (m *model) wait(t *rapid.T) {
	m.f.Advance(rapid.SampledFrom([]time.Duration{7 * time.Second, 40 * time.Second, 25 * time.Hour}).Draw(t, "wait"))
	m.now() // the client's clock catches up
}

func (m *model) sweep(t *rapid.T) {
	now := m.now()
	_, err := m.f.claims.Sweep(m.f.Context(), m.f.scope, scribe)
	require.NoError(t, err)
	for _, l := range m.lives {
		l.lapse(now)
		if l.state == dedupe.Held && l.over(now) {
			l.state = dedupe.Lapsed
		}
		found, err := m.f.claims.Get(m.f.Context(), m.f.scope, l.id)
		if errors.Is(err, dedupe.ErrNotFound) {
			continue // its history is over
		}
		require.NoError(t, err)
		require.Equal(t, l.state, found.Record.State)
	}
}
