package pebblestore

import (
	"bytes"
	"errors"
	"slices"

	"holdfast.dev/gateway/internal/ledger"
)

var (
	errNonce = errors.New("the nonce is zero")
	errID    = errors.New("an id is longer than 255 bytes")
	errLimit = errors.New("the limit is not positive")
)

// checkStep refuses what the contract does not allow. A nonce with a zero head
// is refused too: its version would read as "no such value".
func checkStep(step ledger.Step) error {
	if step.Nonce.Version() == (ledger.Version{}) {
		return errNonce
	}
	ok := true
	for _, x := range step.Expect {
		ok = ok && len(x.Key.ID) <= maxID
	}
	for _, k := range step.Delete {
		ok = ok && len(k.ID) <= maxID
	}
	for _, p := range step.Put {
		ok = ok && len(p.Key.ID) <= maxID
	}
	for _, a := range step.Add {
		ok = ok && len(a.Key.ID) <= maxID
	}
	for _, e := range slices.Concat(step.Unindex, step.Index) {
		ok = ok && len(e.Member) <= maxID
	}
	if !ok {
		return errID
	}
	return checkFetch(step.Fetch)
}

func checkFetch(fetch []ledger.Fetch) error {
	for _, f := range fetch {
		if len(f.Key.ID) > maxID {
			return errID
		}
	}
	return nil
}

// cloneStep copies what a caller could change while the step is still being made
// after its context has ended.
func cloneStep(step ledger.Step) ledger.Step {
	step.Expect = slices.Clone(step.Expect)
	step.Delete = slices.Clone(step.Delete)
	step.Put = slices.Clone(step.Put)
	for i := range step.Put {
		step.Put[i].Data = bytes.Clone(step.Put[i].Data)
	}
	step.Add = slices.Clone(step.Add)
	step.Unindex = slices.Clone(step.Unindex)
	step.Index = slices.Clone(step.Index)
	step.Rows = slices.Clone(step.Rows)
	for i := range step.Rows {
		step.Rows[i] = bytes.Clone(step.Rows[i])
	}
	step.Void = slices.Clone(step.Void)
	step.Fetch = cloneFetch(step.Fetch)
	return step
}

func cloneFetch(fetch []ledger.Fetch) []ledger.Fetch {
	fetch = slices.Clone(fetch)
	for i := range fetch {
		fetch[i].Follow = slices.Clone(fetch[i].Follow)
	}
	return fetch
}
