package pebblestore

import (
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// nonces remembers which steps were applied and which never may be.
//
// It lives in memory alone. A step that is repeated, or still on its way when
// its nonce is voided, belongs to a caller in this process, and a crash ends the
// one with the other.
//
// A nonce is kept for its life on the process's own monotonic clock, not on the
// store's: a repeat comes seconds after the first by any clock, and a clock set
// forward must not make the store forget, nor one set back make it remember
// without end. So the memory is bounded by the rate of steps times their life,
// some 200 bytes each.
type nonces struct {
	known map[nonceKey]memo
	// Each list is in the order of arrival, so its front is the first to end.
	applied, voided []ending
}

type nonceKey struct {
	scope ledger.Scope
	nonce ledger.Nonce
}

// memo is what became of a step.
type memo struct {
	voided   bool
	now      int64 // the store's time at which it was applied
	counters []int64
	until    time.Duration // the store's uptime at the end of the nonce's life
}

type ending struct {
	key   nonceKey
	until time.Duration
}

func (n *nonces) init() { n.known = map[nonceKey]memo{} }

func (n *nonces) find(k nonceKey, uptime time.Duration) (memo, bool) {
	n.applied = n.forget(n.applied, uptime)
	n.voided = n.forget(n.voided, uptime)
	m, ok := n.known[k]
	return m, ok
}

func (n *nonces) apply(k nonceKey, now int64, counters []int64, uptime time.Duration) {
	until := uptime + ledger.NonceLife
	n.known[k] = memo{now: now, counters: counters, until: until}
	n.applied = append(n.applied, ending{k, until})
}

// void has no effect on a step that was applied: it happened.
func (n *nonces) void(k nonceKey, uptime time.Duration) {
	if m, ok := n.known[k]; ok && !m.voided {
		return
	}
	until := uptime + ledger.VoidLife
	n.known[k] = memo{voided: true, until: until}
	n.voided = append(n.voided, ending{k, until})
}

// forget drops the front of a list that has lived its life. A nonce voided twice
// stands in the list twice; the later life counts.
func (n *nonces) forget(list []ending, uptime time.Duration) []ending {
	i := 0
	for ; i < len(list) && list[i].until < uptime; i++ {
		if n.known[list[i].key].until == list[i].until {
			delete(n.known, list[i].key)
		}
	}
	return list[i:]
}
