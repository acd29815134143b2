package actions

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/wire"
)

func TestWhatCountsAgainstAVendor(t *testing.T) {
	answered := func(status int) wire.Exchange { return wire.Exchange{Phase: wire.Answered, Status: status} }
	cut := answered(200)
	cut.Body.State, cut.Reason = wire.Cut, wire.ReasonReset
	ours := cut
	ours.Reason = wire.ReasonCanceled
	for name, c := range map[string]struct {
		x    wire.Exchange
		want error
	}{
		"2xx":               {answered(201), nil},
		"4xx":               {answered(429), nil},
		"5xx":               {answered(500), errVendorFailing},
		"a cut answer":      {cut, errVendorFailing},
		"an answer we cut":  {ours, errNoVerdict},
		"no answer":         {wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonReset}, errVendorFailing},
		"no answer in time": {wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonDeadline}, errVendorFailing},
		"a call we cut":     {wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonCanceled}, errNoVerdict},
	} {
		require.Equal(t, c.want, breakerError(c.x), name)
	}
	for reason, want := range map[string]error{
		wire.ReasonDNS: errVendorFailing, wire.ReasonRefused: errVendorFailing, wire.ReasonDial: errVendorFailing,
		wire.ReasonTLS: errVendorFailing, wire.ReasonDeadline: errVendorFailing,
		wire.ReasonNotPermitted: errNoVerdict, wire.ReasonEgressDenied: errNoVerdict, wire.ReasonClosed: errNoVerdict,
		wire.ReasonInvalidURL: errNoVerdict, wire.ReasonInvalidHeader: errNoVerdict, wire.ReasonCanceled: errNoVerdict,
	} {
		require.Equal(t, want, breakerError(wire.Exchange{Phase: wire.NotSent, Reason: reason}), reason)
	}
}

// report asks the breaker and tells it.
func report(t *testing.T, b *breakers, id string, verdict error) {
	t.Helper()
	done, err := b.allow(id)
	require.NoError(t, err)
	done(verdict)
}

func TestABreakerOpensAndLetsOneProbeBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakers(breakerRest)
		for range tripAfter - 1 {
			report(t, b, "a", errVendorFailing)
			report(t, b, "a", errNoVerdict) // neither mends nor harms
		}
		report(t, b, "a", errVendorFailing)
		_, err := b.allow("a")
		require.Error(t, err)
		report(t, b, "b", nil) // another connection's is closed

		<-time.After(breakerRest + 1)
		probe, err := b.allow("a")
		require.NoError(t, err)
		_, err = b.allow("a")
		require.Error(t, err, "one probe at a time")
		probe(errNoVerdict)
		probe, err = b.allow("a")
		require.NoError(t, err, "a probe that learned nothing leaves room for another")
		probe(errVendorFailing)
		_, err = b.allow("a")
		require.Error(t, err)

		<-time.After(breakerRest + 1)
		report(t, b, "a", nil)
		for range 3 {
			report(t, b, "a", nil)
		}
	})
}

func TestASuccessBetweenFailuresKeepsABreakerClosed(t *testing.T) {
	b := newBreakers(breakerRest)
	for i := range 5 * tripAfter {
		verdict := errVendorFailing
		if i%tripAfter == tripAfter-1 {
			verdict = nil
		}
		report(t, b, "a", verdict)
	}
}

func TestBreakersAreBounded(t *testing.T) {
	b := newBreakers(breakerRest)
	for i := range maxBreakers + 10 {
		_, err := b.allow(fmt.Sprint(i))
		require.NoError(t, err)
		require.LessOrEqual(t, len(b.byID), maxBreakers)
	}
}
