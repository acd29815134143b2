package pebblestore

import (
	"errors"

	"holdfast.dev/gateway/internal/ledger"
)

var (
	errNonce = errors.New("the nonce is zero")
	errID    = errors.New("an id is longer than 255 bytes")
	errLimit = errors.New("the limit is not positive")
)

// checkStep refuses what the contract does not allow. A nonce with a zero head
// is refused too: its version would read as "no such value".
func checkStep(step *ledger.Step) error {
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
	for _, e := range step.Unindex {
		ok = ok && len(e.Member) <= maxID
	}
	for _, e := range step.Index {
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
