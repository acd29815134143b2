package ledgertest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// Linearizable lets clients of the same data change and read a few values at the
// same time and holds the recorded history against a model of the contract: there
// must be an order of the calls, each somewhere between its start and its end, in
// which every answer is the right one. Steps are also sent again under their
// nonce, by whoever comes by. What a client was told nothing of, because the
// store was out of reach, may take effect at any later time, or never.
func Linearizable(t *testing.T, clients []ledger.Store, callers, calls int) {
	t.Helper()
	h := &history{scope: freshScope(), keys: []ledger.Key{key(id("a")), key(id("b")), key(id("c"))}}
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			h.play(t, clients[caller%len(clients)], caller, calls)
		})
	}
	running.Wait()
	result, info := porcupine.CheckOperationsVerbose(stepModel(), h.operations(), time.Minute)
	require.Equal(t, porcupine.Ok, result, "no order explains these answers: %d partial orders", len(info.PartialLinearizationsOperations()))
}

// call is one request of a history; a read has no nonce.
type call struct {
	key    int
	nonce  ledger.Nonce
	expect ledger.Version
}

// said is what came back.
type said struct {
	unknown bool
	applied bool
	version ledger.Version // of the value, unless applied
}

type history struct {
	scope ledger.Scope
	keys  []ledger.Key

	mu    sync.Mutex
	made  []porcupine.Operation
	steps []call // that were sent, to be sent again
	start time.Time
}

func (h *history) play(t *testing.T, store ledger.Store, caller, calls int) {
	r := rand.New(rand.NewPCG(uint64(caller), uint64(calls)))
	seen := make([]ledger.Version, len(h.keys))
	for range calls {
		c := call{key: r.IntN(len(h.keys))}
		switch r.IntN(10) {
		case 0, 1, 2:
		case 3:
			if again, ok := h.again(r); ok {
				c = again
			}
		default:
			c.nonce, c.expect = ledger.NewNonce(), seen[c.key]
		}
		out := h.make(t, store, caller, c)
		switch {
		case out.applied:
			seen[c.key] = c.nonce.Version()
		case !out.unknown:
			seen[c.key] = out.version
		}
	}
}

// again picks a step that somebody has sent before.
func (h *history) again(r *rand.Rand) (call, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.steps) == 0 {
		return call{}, false
	}
	return h.steps[len(h.steps)-1-r.IntN(min(4, len(h.steps)))], true
}

func (h *history) make(t *testing.T, store ledger.Store, caller int, c call) said {
	h.mu.Lock()
	if h.start.IsZero() {
		h.start = time.Now()
	}
	if c.nonce != (ledger.Nonce{}) {
		h.steps = append(h.steps, c)
	}
	began := time.Since(h.start).Nanoseconds()
	h.mu.Unlock()
	out, err := h.ask(t, store, c)
	ended := time.Since(h.start).Nanoseconds()
	if err != nil && !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("an error that is no answer: %v", err)
	}
	if err != nil {
		out = said{unknown: true}
		ended = math.MaxInt64 // it may take effect at any time from now on
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !out.unknown || c.nonce != (ledger.Nonce{}) { // a read without an answer says nothing
		h.made = append(h.made, porcupine.Operation{ClientId: caller, Input: c, Output: out, Call: began, Return: ended})
	}
	return out
}

func (h *history) ask(t *testing.T, store ledger.Store, c call) (said, error) {
	k := h.keys[c.key]
	if c.nonce == (ledger.Nonce{}) {
		snap, err := store.Read(t.Context(), h.scope, ledger.Fetch{Key: k})
		v, _ := snap.Get(k)
		return said{version: v.Version}, err
	}
	res, err := store.Apply(t.Context(), h.scope, ledger.Step{
		Nonce: c.nonce, At: store.Now(),
		Expect: []ledger.Expect{{Key: k, Version: c.expect}},
		Put:    []ledger.Put{{Key: k, Data: c.nonce[:]}},
		Rows:   [][]byte{c.nonce[:]},
		Fetch:  []ledger.Fetch{{Key: k}},
	})
	v, _ := res.Get(k)
	return said{applied: res.Applied, version: v.Version}, err
}

// operations gives each unanswered call a client of its own: its caller went on.
func (h *history) operations() []porcupine.Operation {
	next := 1000
	for i := range h.made {
		if h.made[i].Return == math.MaxInt64 {
			h.made[i].ClientId = next
			next++
		}
	}
	return h.made
}

// value is the state of one value in the model: its version, and the steps that
// were applied to it, in order.
type value struct {
	version ledger.Version
	applied []byte // nonces
}

func (v value) has(n ledger.Nonce) bool {
	for nonce := range slices.Chunk(v.applied, len(n)) {
		if bytes.Equal(nonce, n[:]) {
			return true
		}
	}
	return false
}

func (v value) with(n ledger.Nonce) value {
	return value{version: n.Version(), applied: append(slices.Clip(v.applied), n[:]...)}
}

// stepModel is the contract of ledger.Step for one value, in a few lines.
func stepModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			byKey := map[int][]porcupine.Operation{}
			for _, op := range all {
				c, _ := op.Input.(call)
				byKey[c.key] = append(byKey[c.key], op)
			}
			for _, part := range byKey {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []any { return []any{value{}} },
		Step: func(state, input, output any) []any {
			v, _ := state.(value)
			c, _ := input.(call)
			out, _ := output.(said)
			return v.next(c, out)
		},
		Equal: func(a, b any) bool {
			x, _ := a.(value)
			y, _ := b.(value)
			return x.version == y.version && bytes.Equal(x.applied, y.applied)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
	}
	return model.ToModel()
}

// next lists the states that the value may be in after a call with this answer;
// none means that the answer is wrong here.
func (v value) next(c call, out said) []any {
	done, may := v.has(c.nonce), v.version == c.expect
	switch {
	case c.nonce == (ledger.Nonce{}):
		if out.version == v.version {
			return []any{v}
		}
	case out.unknown && may && !done:
		return []any{v, v.with(c.nonce)}
	case out.unknown, out.applied && done:
		return []any{v}
	case out.applied && may:
		return []any{v.with(c.nonce)}
	case out.applied, done:
	case out.version == v.version:
		// Refused: another version, or, on a busy machine, a time too far off.
		return []any{v}
	}
	return nil
}
