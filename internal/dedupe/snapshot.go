package dedupe

import (
	"time"

	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
)

func bindingKey(id identity.Identity) ledger.Key {
	return ledger.Key{Kind: ledger.Binding, ID: string(id[:])}
}

func twinsKey(f identity.Fingerprint) ledger.Key {
	return ledger.Key{Kind: ledger.Twins, ID: string(f[:])}
}

func actionKey(kind ledger.Kind, id ActionID) ledger.Key {
	return ledger.Key{Kind: kind, ID: string(id[:])}
}

func leaseEntry(r *Record) ledger.Entry {
	return ledger.Entry{Index: ledger.ByLease, Score: r.LeaseEnd, Member: string(r.ID[:])}
}

func holdEntry(r *Record) ledger.Entry {
	return ledger.Entry{Index: ledger.ByHold, Score: r.HoldUntil, Member: string(r.ID[:])}
}

// heldEntries are where a held action stands: by its end, and by its next
// check if there is to be one.
func heldEntries(r *Record) []ledger.Entry {
	entries := []ledger.Entry{holdEntry(r)}
	if !r.NextCheck.IsZero() {
		entries = append(entries, ledger.Entry{Index: ledger.ByCheck, Score: r.NextCheck, Member: string(r.ID[:])})
	}
	return entries
}

func createdEntry(r *Record) ledger.Entry {
	return ledger.Entry{Index: ledger.ByCreated, Score: r.Created, Member: string(r.ID[:])}
}

// aliasEntry is where an identity stands that is bound to an action of another:
// nothing of that action names it, and it must be found to be erased.
func aliasEntry(id identity.Identity, r *Record) ledger.Entry {
	return ledger.Entry{Index: ledger.ByAlias, Score: twinsEnd(r), Member: string(id[:])}
}

// stored is a record as a snapshot holds it.
type stored struct {
	*Record
	version ledger.Version
}

func (s stored) key() ledger.Key { return actionKey(ledger.Action, s.ID) }

// expect is the condition that the record is still as it was read.
func (s stored) expect() ledger.Expect {
	return ledger.Expect{Key: s.key(), Version: s.version}
}

// recordIn decodes the record of an action; ok is false if there is none.
func recordIn(snap ledger.Snapshot, id ActionID) (s stored, ok bool, err error) {
	v, ok := snap.Get(actionKey(ledger.Action, id))
	if !ok {
		return stored{}, false, nil
	}
	rec, err := decodeRecord(id, v.Data)
	if err != nil {
		return stored{}, false, err
	}
	return stored{Record: rec, version: v.Version}, true, nil
}

// answerIn decodes the answer of an action; nil if none is stored.
func answerIn(snap ledger.Snapshot, id ActionID) ([]byte, error) {
	v, ok := snap.Get(actionKey(ledger.Answer, id))
	if !ok {
		return nil, nil
	}
	return decodeAnswer(v.Data)
}

// splitIDs reads the ids a binding or a twin list holds.
func splitIDs(data []byte) ([]ActionID, error) {
	if len(data)%16 != 0 {
		return nil, ErrUnreadable
	}
	ids := make([]ActionID, 0, len(data)/16)
	for ; len(data) > 0; data = data[16:] {
		ids = append(ids, ActionID(data[:16]))
	}
	return ids, nil
}

func joinIDs(ids []ActionID) []byte {
	out := make([]byte, 0, 16*len(ids))
	for _, id := range ids {
		out = append(out, id[:]...)
	}
	return out
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// milli drops what a record does not keep.
func milli(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()).UTC() }
