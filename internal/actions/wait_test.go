package actions_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/wire"
)

// running starts a write that the vendor works on until it is released.
func running(t *testing.T, opts ...option) (f *fixture, first <-chan answer, release func(wire.Exchange)) {
	t.Helper()
	f = newFixture(t, opts...)
	working, release := f.vendor.stalls()
	first = f.start(t.Context(), f.request(`{}`))
	receive(t, working)
	return f, first, release
}

// waits starts a duplicate and returns once it has met the running write.
func (f *fixture) waits(ctx context.Context, d time.Duration) <-chan answer {
	f.Helper()
	before := len(f.rows())
	out := f.start(ctx, f.request(`{}`, withWait(d)))
	f.eventually("the duplicate is there", func() bool { return len(f.rows()) > before })
	return out
}

func TestADuplicateThatWaitsGetsTheAnswer(t *testing.T) {
	f, first, release := running(t)
	second := f.waits(t.Context(), time.Minute)
	release(answered(201, "application/json", `{"id":1}`))
	require.NoError(t, receive(t, first).err)
	got := receive(t, second)
	require.NoError(t, got.err)
	require.True(t, got.reply.Replayed)
	require.Equal(t, `{"id":1}`, string(got.reply.Answer.Data))
	require.Equal(t, []string{"claimed", "in_flight", "succeeded", "replayed"}, f.events())
	require.Equal(t, 1, f.vendor.calls())
}

func TestADuplicateThatWaitsGetsTheDoubt(t *testing.T) {
	f, first, release := running(t)
	second := f.waits(t.Context(), time.Minute)
	release(wire.Exchange{Phase: wire.SentNoAnswer})
	receive(t, first)
	got := receive(t, second)
	f.failed(actions.OutcomeUnknown, got.reply, got.err)
	require.Equal(t, 1, f.vendor.calls())
}

func TestADuplicateWhoseWriteLosesItsLeaseGetsTheDoubt(t *testing.T) {
	f, first, release := running(t)
	second := f.waits(t.Context(), time.Minute)
	f.clock.advance(lease)
	got := receive(t, second)
	f.failed(actions.OutcomeUnknown, got.reply, got.err)
	require.Equal(t, 1, f.vendor.calls())
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, first).err)
}

func TestADuplicateWhoseTimeIsUpIsToldItRuns(t *testing.T) {
	f, first, release := running(t)
	got := receive(t, f.start(t.Context(), f.request(`{}`, withWait(150*time.Millisecond))))
	e := f.failed(actions.InFlight, got.reply, got.err)
	require.NotZero(t, e.RetryAfter)
	require.Equal(t, []string{"claimed", "in_flight"}, f.events(), "waiting leaves no rows")
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, first).err)
}

// A tenant's flood of duplicates that want to wait must not become a flood of
// questions to the store.
func TestTooManyDuplicatesDoNotWait(t *testing.T) {
	f, first, release := running(t)
	var others []<-chan answer
	for range 32 {
		others = append(others, f.waits(t.Context(), time.Minute))
	}
	got := receive(t, f.start(t.Context(), f.request(`{}`, withWait(time.Minute))))
	f.failed(actions.InFlight, got.reply, got.err)
	release(answered(201, "application/json", `{"id":1}`))
	require.NoError(t, receive(t, first).err)
	for _, other := range others {
		require.NoError(t, receive(t, other).err)
	}
	require.Equal(t, 1, f.vendor.calls())
}

func TestADuplicateThatHangsUpStopsWaiting(t *testing.T) {
	f, first, release := running(t)
	ctx, hangUp := context.WithCancel(t.Context())
	second := f.waits(ctx, time.Hour)
	hangUp()
	got := receive(t, second)
	f.failed(actions.InFlight, got.reply, got.err)
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, first).err)
}

func TestTheEndOfTheDrainEndsTheWaiting(t *testing.T) {
	f, first, _ := running(t)
	second := f.waits(t.Context(), time.Hour)
	f.close(0)
	receive(t, first)
	require.Error(t, receive(t, second).err)
	require.Equal(t, dedupe.Held, f.only().State)
}
