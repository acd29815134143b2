package connections_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
)

func TestDelete(t *testing.T) {
	f := newFixture(t)
	c := f.put("billing", stripe())
	asked := 0
	require.NoError(t, f.delete("billing", func(_ context.Context, scope ledger.Scope, id string) (bool, error) {
		asked++
		require.Equal(t, f.tenant, scope)
		require.Equal(t, c.ID, id)
		return false, nil
	}))
	require.Equal(t, 1, asked)
	_, err := f.Get(t.Context(), f.tenant, "billing")
	require.ErrorIs(t, err, connections.ErrNotFound)
	require.ErrorIs(t, f.delete("billing", settled), connections.ErrNotFound)
	page, _, err := f.List(t.Context(), f.tenant, "", 10)
	require.NoError(t, err)
	require.Empty(t, page)
	entries, err := f.store.Entries(t.Context(), f.tenant, ledger.EntryRange{Index: ledger.ByName, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, entries, "nothing of it stays behind")

	rows := f.rows()
	require.Equal(t, []audit.Event{audit.ConnectionCreated, audit.ConnectionClosing, audit.ConnectionDeleted}, f.events())
	for _, r := range rows {
		require.Equal(t, c.ID, r.Subject)
		require.Equal(t, "billing", r.Connection)
		require.Equal(t, "req_1", r.RequestID)
	}

	require.NotEqual(t, c.ID, f.put("billing", stripe()).ID, "made again, it is another connection")
	require.False(t, f.claims(c, "w1"), "and no claim on the old one can be made")
}

func TestNoClaimOnAConnectionThatIsClosing(t *testing.T) {
	f := newFixture(t)
	before := f.put("billing", stripe())
	require.True(t, f.claims(before, "w0"))
	require.NoError(t, f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
		require.False(t, f.claims(before, "w1"), "while the question is asked")
		now := f.get("billing")
		require.True(t, now.Paused, "so that nobody plans a write on it")
		require.True(t, now.Closing)
		return false, nil
	}))
	require.False(t, f.claims(before, "w2"), "and afterwards")
}

func TestUnsettledWritesKeepAConnection(t *testing.T) {
	for _, paused := range []bool{false, true} {
		t.Run(fmt.Sprintf("paused %t", paused), func(t *testing.T) {
			f := newFixture(t)
			spec := stripe()
			spec.Paused = on(paused)
			c := f.put("billing", spec)
			require.ErrorIs(t, f.delete("billing", inFlight), connections.ErrUnsettled)

			after := f.get("billing")
			require.NotEqual(t, c.Version, after.Version)
			c.Version = after.Version
			require.Equal(t, c, after, "nothing else has changed")
			require.True(t, f.claims(after, "w1"))
			require.Equal(t, []audit.Event{audit.ConnectionCreated, audit.ConnectionClosing, audit.ConnectionReopened}, f.events())
		})
	}
}

func TestAQuestionWithoutAnAnswerDeletesNothing(t *testing.T) {
	f := newFixture(t)
	c := f.put("billing", stripe())
	failure := errors.New("no answer")
	ctx, cancel := context.WithCancel(t.Context())
	err := f.Delete(ctx, f.caller, f.tenant, "billing", func(context.Context, ledger.Scope, string) (bool, error) {
		cancel() // the caller has gone as well
		return false, failure
	})
	require.ErrorIs(t, err, failure)
	after := f.get("billing")
	require.Equal(t, c.ID, after.ID)
	require.False(t, after.Closing, "opened again although nobody waits any more")
	require.False(t, after.Paused)
}

// stuck leaves a connection as a process does that dies in the middle of a
// deletion.
func stuck(t *testing.T) (*fixture, connections.Connection) {
	t.Helper()
	f := newFixture(t)
	f.put("billing", stripe())
	err := f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
		f.store.before = always
		return true, nil
	})
	require.ErrorIs(t, err, connections.ErrUnsettled)
	require.ErrorIs(t, err, ledger.ErrUnavailable, "and nobody could open it again")
	f.store.before = nil
	c := f.get("billing")
	require.True(t, c.Closing)
	require.True(t, c.Paused)
	return f, c
}

func TestAfterADeletionThatDied(t *testing.T) {
	t.Run("delete again", func(t *testing.T) {
		f, c := stuck(t)
		require.NoError(t, f.delete("billing", func(_ context.Context, _ ledger.Scope, id string) (bool, error) {
			require.Equal(t, c.ID, id)
			require.Equal(t, c, f.get("billing"), "the mark that was left serves")
			return false, nil
		}))
		_, err := f.Get(t.Context(), f.tenant, "billing")
		require.ErrorIs(t, err, connections.ErrNotFound)
		require.Equal(t, []audit.Event{audit.ConnectionCreated, audit.ConnectionClosing, audit.ConnectionDeleted}, f.events())
	})
	t.Run("put again", func(t *testing.T) {
		f, c := stuck(t)
		again, created, err := f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, c.ID, again.ID)
		require.False(t, again.Closing)
		require.False(t, again.Paused)
		require.NotEqual(t, c.Version, again.Version)
		require.Equal(t, again, f.get("billing"))
		require.Equal(t, []audit.Event{audit.ConnectionCreated, audit.ConnectionClosing, audit.ConnectionReopened}, f.events())
	})
	t.Run("put again with a change", func(t *testing.T) {
		f, _ := stuck(t)
		again := f.put("billing", connections.Spec{Paused: on(true)})
		require.True(t, again.Paused)
		require.Equal(t, []audit.Event{
			audit.ConnectionCreated, audit.ConnectionClosing, audit.ConnectionReopened, audit.ConnectionUpdated,
		}, f.events())
	})
	t.Run("a refused put leaves it closed", func(t *testing.T) {
		f, c := stuck(t)
		_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", connections.Spec{Connector: "other@1"})
		require.ErrorIs(t, err, connections.ErrFixed)
		require.Equal(t, c, f.get("billing"))
	})
}

// The answer to "is anything unsettled" is good for the version it was asked
// under and for no other.
func TestAPutDuringADeletionMakesItAskAgain(t *testing.T) {
	f := newFixture(t)
	c := f.put("billing", stripe())
	asked := 0
	err := f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
		if asked++; asked == 1 {
			open := f.put("billing", stripe())
			require.True(t, f.claims(open, "w1"), "opened again, it takes writes again")
			return false, nil // an answer from before that
		}
		return true, nil
	})
	require.ErrorIs(t, err, connections.ErrUnsettled)
	require.Equal(t, 2, asked)
	require.Equal(t, c.ID, f.get("billing").ID)
}

func TestADeletionGoesForOneConnectionNotForAName(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	var fresh connections.Connection
	require.NoError(t, f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
		require.NoError(t, f.delete("billing", settled), "somebody else was faster")
		fresh = f.put("billing", stripe())
		return false, nil
	}))
	require.Equal(t, fresh, f.get("billing"), "the connection made since is not what was to be deleted")
}

func TestTwoDeletionsAtOnce(t *testing.T) {
	t.Run("both find it settled", func(t *testing.T) {
		f := newFixture(t)
		f.put("billing", stripe())
		require.NoError(t, f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
			require.NoError(t, f.delete("billing", settled))
			return false, nil
		}))
		require.Equal(t, []audit.Event{audit.ConnectionCreated, audit.ConnectionClosing, audit.ConnectionDeleted}, f.events())
	})
	t.Run("the other one gives up", func(t *testing.T) {
		f := newFixture(t)
		f.put("billing", stripe())
		asked := 0
		require.NoError(t, f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
			if asked++; asked == 1 {
				require.ErrorIs(t, f.delete("billing", inFlight), connections.ErrUnsettled)
				return false, nil
			}
			return false, nil
		}))
		require.Equal(t, 2, asked, "the mark it stood on was gone")
	})
	t.Run("the other one deletes between this one's question and its step", func(t *testing.T) {
		f := newFixture(t)
		f.put("billing", stripe())
		once := false
		require.NoError(t, f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
			f.store.before = func(ledger.Step) error {
				if !once {
					once = true
					require.NoError(t, f.delete("billing", settled))
				}
				return nil
			}
			return false, nil
		}))
		require.Equal(t, []audit.Event{audit.ConnectionCreated, audit.ConnectionClosing, audit.ConnectionDeleted}, f.events())
	})
	t.Run("the other one deletes, this one finds a write", func(t *testing.T) {
		f := newFixture(t)
		f.put("billing", stripe())
		require.Equal(t, connections.ErrUnsettled, f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
			require.NoError(t, f.delete("billing", settled))
			return true, nil
		}))
		_, err := f.Get(t.Context(), f.tenant, "billing")
		require.ErrorIs(t, err, connections.ErrNotFound, "giving up brings nothing back")
	})
}

func TestADeletionThatNeverComesToRest(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	asked := 0
	err := f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
		asked++
		f.put("billing", stripe())
		return false, nil
	})
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.Less(t, asked, 100)
	f.get("billing")
}

func TestDeleteInDoubt(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	require.ErrorIs(t, f.delete("billing", func(context.Context, ledger.Scope, string) (bool, error) {
		f.store.after = always // deleted, but nobody is told
		return false, nil
	}), ledger.ErrUnavailable)
	f.store.after = nil
	require.ErrorIs(t, f.delete("billing", settled), connections.ErrNotFound)
	require.Equal(t, []audit.Event{audit.ConnectionCreated, audit.ConnectionClosing, audit.ConnectionDeleted}, f.events())
}

// race is a connection that is claimed on, settled, deleted and made again by
// many at once. Writes carry the connection's id, as a write's record does.
type race struct {
	*fixture
	mu       sync.Mutex
	claimed  map[string]string // write in flight -> connection id
	attempts atomic.Int64
	made     atomic.Int64
}

// work claims and settles until the test ends.
func (r *race) work(ctx context.Context, who int) {
	for n := 0; ctx.Err() == nil; n++ {
		c, err := r.Get(ctx, r.tenant, "billing")
		if err != nil || c.Paused {
			continue
		}
		id := fmt.Sprintf("w%d-%d", who, n)
		step := r.claim(c, id)
		r.attempts.Add(1)
		// As dedupe does it: once on its way, a claim is carried to its end.
		res, err := r.store.Apply(context.WithoutCancel(ctx), r.tenant, step)
		if err != nil || !res.Applied {
			continue
		}
		r.made.Add(1)
		r.track(id, c.ID)
		r.settle(id, step)
	}
}

func (r *race) track(id, connection string) { r.mu.Lock(); r.claimed[id] = connection; r.mu.Unlock() }

func (r *race) settle(id string, claim ledger.Step) {
	res, err := r.store.Apply(context.Background(), r.tenant, ledger.Step{
		Nonce: ledger.NewNonce(), At: r.store.Now(),
		Delete: []ledger.Key{claim.Put[0].Key}, Unindex: claim.Index,
	})
	if err == nil && res.Applied {
		r.mu.Lock()
		delete(r.claimed, id)
		r.mu.Unlock()
	}
}

// unsettled asks the store, as dedupe does.
func (r *race) unsettled(ctx context.Context, scope ledger.Scope, id string) (bool, error) {
	entries, err := r.store.Entries(ctx, scope, ledger.EntryRange{Index: ledger.ByLease, Limit: 1000})
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		key := ledger.Key{Kind: ledger.Action, ID: e.Member}
		snap, err := r.store.Read(ctx, scope, ledger.Fetch{Key: key})
		if err != nil {
			return false, err
		}
		if v, ok := snap.Get(key); ok && string(v.Data) == id {
			return true, nil
		}
	}
	return false, nil
}

func TestDeletionAgainstClaims(t *testing.T) {
	r := &race{fixture: newFixture(t), claimed: map[string]string{}}
	r.put("billing", stripe())
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for who := range 4 {
		workers.Go(func() { r.work(ctx, who) })
	}
	const rounds = 15
	for deleted, unsettled := 0, 0; deleted < rounds; {
		c := r.get("billing")
		err := r.delete("billing", r.unsettled)
		if errors.Is(err, connections.ErrUnsettled) {
			unsettled++
			continue
		}
		require.NoError(t, err)
		open, err := r.unsettled(t.Context(), r.tenant, c.ID)
		require.NoError(t, err)
		require.False(t, open, "a write on a deleted connection is in flight")
		deleted++
		before := r.made.Load()
		r.put("billing", stripe())
		for r.made.Load() == before && ctx.Err() == nil { // some writes on the new one first
			_, err := r.Get(ctx, r.tenant, "billing")
			require.NoError(t, err)
		}
	}
	stop()
	workers.Wait()
	require.Empty(t, r.claimed)
	require.Positive(t, r.made.Load())
}
