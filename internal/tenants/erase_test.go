package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

func writeKey(i int) ledger.Key { return ledger.Key{Kind: ledger.Action, ID: fmt.Sprint(i)} }

// leave gives a tenant some writes, as far as this package knows them: values in
// an index.
func (f *fixture) leave(ref tenants.Ref, n int) {
	f.t.Helper()
	for i := range n {
		require.True(f.t, f.apply(ref.Scope, ledger.Step{
			Put:   []ledger.Put{{Key: writeKey(i), Data: []byte("personal")}},
			Index: []ledger.Entry{{Index: ledger.ByCreated, Score: noon, Member: writeKey(i).ID}},
		}))
	}
}

// eraser is one of another process, whose ended is what a test says.
func (f *fixture) eraser(ended func(context.Context, tenants.Ref) error) *tenants.Eraser {
	return f.replica().NewEraser(f.eraseTwo, ended)
}

// eraseTwo removes two writes at a time.
func (f *fixture) eraseTwo(ctx context.Context, scope ledger.Scope, guard []ledger.Expect, row func(time.Time, int) []byte) (bool, error) {
	found, err := f.store.Entries(ctx, scope, ledger.EntryRange{Index: ledger.ByCreated, Limit: 2})
	if err != nil || len(found) == 0 {
		return false, err
	}
	step := ledger.Step{Nonce: ledger.NewNonce(), At: f.store.Now(), Expect: guard, Unindex: found, Rows: [][]byte{row(f.store.Now(), len(found))}}
	for _, e := range found {
		step.Delete = append(step.Delete, ledger.Key{Kind: ledger.Action, ID: e.Member})
	}
	res, err := f.store.Apply(ctx, scope, step)
	if err == nil && !res.Applied {
		err = errors.New("the guard does not hold")
	}
	return true, err
}

func (f *fixture) left(ref tenants.Ref, n int) int {
	f.t.Helper()
	left := 0
	for i := range n {
		if _, ok := f.value(ref.Scope, writeKey(i)); ok {
			left++
		}
	}
	return left
}

// erasures are the platform's rows that say a tenant was erased.
func (f *fixture) erasures() []string {
	f.t.Helper()
	var subjects []string
	for _, row := range f.rows(ledger.Platform) {
		if row.Event == audit.TenantErased {
			require.Equal(f.t, "acme", row.Tenant)
			subjects = append(subjects, row.Subject)
		}
	}
	return subjects
}

func TestOfAnErasedTenantOnlyTheAuditIsLeft(t *testing.T) {
	f := newFixture(t)
	made, other := f.create("acme"), f.create("globex")
	f.leave(made.Ref, 5)
	f.leave(other.Ref, 1)
	require.NoError(t, f.eraser(nil).Pass(t.Context()))
	require.Equal(t, 5, f.left(made.Ref, 5), "a tenant that lives is not touched")
	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
	require.Equal(t, 5, f.left(made.Ref, 5), "deleting is quick; the rest is the eraser's")
	young := f.create("acme")
	f.leave(young.Ref, 1)

	var ended []tenants.Ref
	eraser := f.eraser(func(_ context.Context, ref tenants.Ref) error {
		require.Zero(t, f.left(made.Ref, 5), "the log ends once nothing is left to record")
		ended = append(ended, ref)
		return nil
	})
	for range 2 {
		require.NoError(t, eraser.Pass(t.Context()))
	}

	require.Equal(t, []tenants.Ref{made.Ref}, ended)
	require.Equal(t, []string{made.TenantID}, f.erasures())
	require.Equal(t, 1, f.left(other.Ref, 1))
	require.Equal(t, 1, f.left(young.Ref, 1), "who has the id now is another")
	rows := f.rows(made.Scope)
	require.Equal(t, []string{"tenant.created", "tenant.closing", "tenant.deleted", "tenant.purged", "tenant.purged", "tenant.purged"}, f.events(made.Scope))
	require.Equal(t, "writes:1", rows[len(rows)-1].Subject)
	require.Equal(t, audit.System(), rows[len(rows)-1].Actor)
	require.Equal(t, "acme", rows[len(rows)-1].Tenant)
	found, err := f.FindLife(t.Context(), "acme", made.TenantID)
	require.NoError(t, err)
	require.Equal(t, made.Ref, found, "the host still finds its rows")
	require.ElementsMatch(t, []ledger.Scope{other.Scope, young.Scope}, f.scopes())
}

// Whichever step is the last one that a process takes, and whether or not it
// heard that it was applied: the next one ends the deletion, and says so once.
func TestErasureSurvivesAnyCrash(t *testing.T) {
	crash := errors.New("the process ends here")
	for _, heard := range []bool{true, false} {
		for at := 0; ; at++ {
			f := newFixture(t)
			made := f.create("acme")
			f.key(made.Ref)
			f.leave(made.Ref, 5)
			n := 0
			die := func(ledger.Step) error {
				if n++; n > at {
					return crash
				}
				return nil
			}
			if heard {
				f.store.before = die
			} else {
				f.store.after = die
			}
			err := f.DeleteTenant(t.Context(), f.caller, "acme")
			if err == nil {
				err = f.eraser(nil).Pass(t.Context())
			}
			f.store.before, f.store.after = nil, nil
			finished := err == nil
			if _, alive := f.GetTenant(t.Context(), "acme"); alive == nil {
				// Nobody is gone yet: the call has to be made again.
				require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
			}
			require.NoError(t, f.eraser(nil).Pass(t.Context()))

			require.Zero(t, f.left(made.Ref, 5))
			require.Empty(t, f.named(made.Scope))
			require.Equal(t, []string{made.TenantID}, f.erasures(), "step %d, heard %t", at, heard)
			require.Empty(t, f.list())
			f.create("acme")
			if finished {
				require.Greater(t, at, 6)
				break
			}
		}
	}
}

func TestManyErasersAtOnce(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	f.leave(made.Ref, 20)
	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { _ = f.eraser(nil).Pass(t.Context()) })
	}
	all.Wait()
	require.NoError(t, f.eraser(nil).Pass(t.Context()))
	require.Zero(t, f.left(made.Ref, 20))
	require.Equal(t, []string{made.TenantID}, f.erasures())
}

// A log whose end cannot be sealed is not forgotten, and keeps nobody waiting.
func TestErasureWaitsForTheEndOfTheLog(t *testing.T) {
	f := newFixture(t)
	first := f.create("acme")
	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
	second := f.create("acme")
	f.leave(second.Ref, 1)
	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
	away := errors.New("the archive is away")
	eraser := f.eraser(func(_ context.Context, ref tenants.Ref) error {
		if ref == first.Ref {
			return away
		}
		return nil
	})
	require.ErrorIs(t, eraser.Pass(t.Context()), away)
	require.Zero(t, f.left(second.Ref, 1))
	require.Equal(t, []string{second.TenantID}, f.erasures())
	away = nil
	require.NoError(t, eraser.Pass(t.Context()))
	require.Equal(t, []string{second.TenantID, first.TenantID}, f.erasures())
}
