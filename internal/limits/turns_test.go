package limits_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/tenants"
)

func take(t *testing.T, turns *limits.Turns, who string) *limits.Turn {
	t.Helper()
	u, over := turns.Take(t.Context(), tenant(who))
	require.Nil(t, over)
	require.NotNil(t, u)
	return u
}

// shared makes turns that a tenant of whom no test speaks has asked for, so that
// nobody is alone.
func shared(t *testing.T, most int64) *limits.Turns {
	t.Helper()
	turns := limits.NewTurns(most)
	take(t, turns, "neighbour").Leave()
	return turns
}

// A tenant's requests beyond its turns wait, in order, and nobody else's do.
func TestTurnsAreEachTenantsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := shared(t, 2)
		one, two := take(t, turns, "a"), take(t, turns, "a")
		var got []int
		var mu sync.Mutex
		for i := range 3 {
			go func() {
				u := take(t, turns, "a")
				mu.Lock()
				got = append(got, i)
				mu.Unlock()
				u.Leave()
			}()
			synctest.Wait()
		}
		require.Empty(t, got)
		take(t, turns, "b").Leave()
		one.Leave()
		one.Leave() // counts once
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2}, got)
		two.Leave()
		require.Zero(t, limits.Lines(turns), "nobody is remembered who does not ask")
	})
}

// A tenant beside which nobody asks has many turns, from ten minutes after the
// last request of another until the next.
func TestATenantAloneHasManyTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := limits.NewTurns(1)
		many := make([]*limits.Turn, 256)
		for i := range many {
			many[i] = take(t, turns, "a")
		}
		var got atomic.Int64
		wait := func() {
			go func() {
				u := take(t, turns, "a")
				got.Add(1)
				<-t.Context().Done()
				u.Leave()
			}()
			synctest.Wait()
		}
		wait()
		require.Zero(t, got.Load(), "not endlessly many")
		many[0].Leave()
		synctest.Wait()
		require.EqualValues(t, 1, got.Load())

		take(t, turns, "b").Leave() // at once, whoever was there before
		wait()
		for _, u := range many[1:] {
			u.Leave()
		}
		synctest.Wait()
		require.EqualValues(t, 1, got.Load(), "its share has become one, and one is out")
	})
}

func TestCompanyIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := shared(t, 1)
		<-time.After(10 * time.Minute)
		first := take(t, turns, "a")
		second := make(chan *limits.Turn)
		go func() { second <- take(t, turns, "a") }()
		synctest.Wait()
		<-time.After(time.Nanosecond)
		take(t, turns, "a").Leave() // now it has many, and so have those in the line
		(<-second).Leave()
		first.Leave()
		require.Zero(t, limits.Lines(turns))
	})
}

// Who waits for a vendor lets others work, and goes on before those who have not
// begun.
func TestARestingTurnIsAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := shared(t, 1)
		first := take(t, turns, "a")
		resume := first.Rest()
		second := take(t, turns, "a")
		var order []string
		go func() { take(t, turns, "a").Leave(); order = append(order, "begun") }()
		synctest.Wait()
		go func() { resume(); resume(); order = append(order, "resumed"); first.Leave() }()
		synctest.Wait()
		require.Empty(t, order)
		second.Leave()
		synctest.Wait()
		require.Equal(t, []string{"resumed", "begun"}, order)
		require.Zero(t, limits.Lines(turns))
	})
}

func TestATurnThatEndsWhileItRests(t *testing.T) {
	turns := shared(t, 1)
	u := take(t, turns, "a")
	resume := u.Rest()
	u.Leave()
	resume()
	u.Rest()()
	take(t, turns, "a").Leave()
	require.Zero(t, limits.Lines(turns))
}

// The waiting is bounded, in number and in time; a caller who has gone waits no
// longer.
func TestWaitingForATurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := shared(t, 1)
		u := take(t, turns, "a")
		ctx, hangUp := context.WithCancel(t.Context())
		var tooLong, gone atomic.Int64
		for i := range 512 {
			ctx := ctx
			if i%2 == 0 {
				ctx = t.Context()
			}
			go func() {
				switch _, over := turns.Take(ctx, tenant("a")); {
				case over == nil:
					gone.Add(1)
				case *over == limits.Exceeded{Limit: limits.AtOnce, Wait: time.Second}:
					tooLong.Add(1)
				}
			}()
		}
		synctest.Wait()
		_, over := turns.Take(t.Context(), tenant("a"))
		require.Equal(t, &limits.Exceeded{Limit: limits.AtOnce, Wait: time.Second}, over, "the line is full")
		hangUp()
		synctest.Wait()
		require.EqualValues(t, 256, gone.Load())
		<-time.After(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 256, tooLong.Load())
		u.Leave()
		take(t, turns, "a").Leave()
		require.Zero(t, limits.Lines(turns))
	})
}

// hanging is a store that answers when its gate is closed.
type hanging struct {
	ledger.Store
	gate chan struct{}
}

func (h hanging) Read(context.Context, ledger.Scope, ...ledger.Fetch) (ledger.Snapshot, error) {
	<-h.gate
	return ledger.Snapshot{}, nil
}

// A store that hangs uses up nobody's turns.
func TestTurnsRestWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := shared(t, 1)
		store := limits.Shared{Store: hanging{gate: make(chan struct{})}}
		u := take(t, turns, "a")
		read := make(chan struct{})
		go func() {
			_, _ = store.Read(limits.WithTurn(t.Context(), u), ledger.Scope{})
			close(read)
		}()
		began := time.Now()
		other := take(t, turns, "a")
		require.Equal(t, 100*time.Millisecond, time.Since(began), "a store that answers soon keeps the turn")
		close(store.Store.(hanging).gate)
		synctest.Wait()
		select {
		case <-read:
			t.Error("it went on without a turn")
		default:
		}
		other.Leave()
		<-read
		u.Leave()
		require.Zero(t, limits.Lines(turns))
	})
}

func TestNobodysTurn(t *testing.T) {
	var none *limits.Turns
	u, over := none.Take(t.Context(), tenant("a"))
	require.Nil(t, u)
	require.Nil(t, over)
	u.Leave()
	u.Rest()()
	u.RestAfter(time.Second)()
	require.Nil(t, limits.TurnOf(t.Context()))
	require.Nil(t, limits.TurnOf(limits.WithTurn(t.Context(), nil)))
	require.Nil(t, limits.NewTurns(0))
	u, over = shared(t, 1).Take(t.Context(), tenants.Principal{Platform: true})
	require.Nil(t, u, "the host is not bounded")
	require.Nil(t, over)
}

func TestTurnsAreSafeForConcurrentUse(t *testing.T) {
	const most = 3
	turns := shared(t, most)
	var working atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range 100 {
				u := take(t, turns, "a")
				if n := working.Add(1); n > most {
					t.Errorf("%d at once", n)
				}
				working.Add(-1)
				resume := u.Rest()
				resume()
				if n := working.Add(1); n > most {
					t.Errorf("%d at once after a rest", n)
				}
				working.Add(-1)
				u.Leave()
			}
		})
	}
	all.Wait()
	require.Zero(t, limits.Lines(turns))
}

// Who is refused waits a moment, up to a number of them; then its connection is
// closed.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := limits.NewPauses()
		began := time.Now()
		require.True(t, p.Wait(t.Context(), "a"))
		require.Equal(t, 500*time.Millisecond, time.Since(began))
		for range 64 {
			go p.Wait(t.Context(), "a")
			synctest.Wait()
		}
		began = time.Now()
		require.True(t, p.Wait(t.Context(), "a"))
		require.Equal(t, time.Second, time.Since(began), "the more wait, the longer")
		for range 4096 {
			go p.Wait(t.Context(), "a")
		}
		synctest.Wait()
		require.False(t, p.Wait(t.Context(), "a"))
		require.True(t, p.Wait(t.Context(), "b"), "another's place is not taken")
		<-time.After(9 * time.Second)
		synctest.Wait()
		require.True(t, p.Wait(t.Context(), "a"), "and they get free again")
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		began = time.Now()
		require.True(t, p.Wait(gone, "a"))
		require.Zero(t, time.Since(began))
		for i := range 8192 {
			go p.Wait(t.Context(), string(rune(i)))
		}
		synctest.Wait()
		require.False(t, p.Wait(t.Context(), "c"), "all together are bounded")
		<-time.After(9 * time.Second)
	})
	var none *limits.Pauses
	require.True(t, none.Wait(t.Context(), "a"))
}
