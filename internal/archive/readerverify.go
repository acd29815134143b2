package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"holdfast.dev/gateway/internal/ledger"
)

// Verify reads the whole log of a scope, as far as it is sealed, and says what it
// proves. It trusts the keys that the store holds; whoever wants to trust nobody
// exports the log and verifies it with a key and a checkpoint put aside before.
func (r *Reader) Verify(ctx context.Context, scope ledger.Scope) (Report, error) {
	h, ok, err := r.Head(ctx, scope)
	if err != nil || !ok {
		return Report{Scope: ScopeID(scope)}, err
	}
	known, err := SigningKeys(ctx, r.store)
	if err != nil {
		return Report{}, err
	}
	keys := Keys{}
	for _, k := range known {
		keys[KeyID(k.Key)] = k.Key
	}
	v := NewVerifier(keys, nil)
	// The log begins and ends where the store says.
	v.expect(scope, h)
	first := h.Kept.Number
	for first <= h.Number {
		found, err := entries(ctx, r.store, scope, first, min(entriesAtOnce, h.Number+1-first), decodeEntry)
		if err != nil {
			return Report{}, err
		}
		for _, e := range found {
			if err := r.verifyOne(ctx, v, e); err != nil {
				return Report{}, err
			}
		}
		first += entriesAtOnce
	}
	report := v.Close()
	if report.Whole() && (report.Proven != h.Seq || report.Head != h.Hash) {
		report.add(Finding{Kind: Truncated, Segment: h.Number, Row: h.Seq, Detail: "the archive does not lead to the row that the store says was sealed last"})
	}
	return report, nil
}

func (r *Reader) verifyOne(ctx context.Context, v *Verifier, e Entry) error {
	text, err := r.Text(ctx, e)
	if errors.Is(err, ErrDamaged) {
		v.damaged(e, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("verify segment %d: %w", e.Number, err)
	}
	for line := range bytes.Lines(text) {
		v.Line(bytes.TrimSuffix(line, []byte("\n")))
	}
	return nil
}

// expect makes the verifier begin where a log is known to begin.
func (v *Verifier) expect(scope ledger.Scope, h Head) {
	v.begun = true
	v.report.Scope, v.report.Tenant, v.report.Begins = ScopeID(scope), h.Tenant, h.Kept.Seq
	v.next = place{number: h.Kept.Number, first: h.Kept.Seq, prev: h.Kept.Prev}
}

// damaged passes over a segment whose object cannot be had.
func (v *Verifier) damaged(e Entry, cause error) {
	v.broken = true
	v.report.add(Finding{Kind: MissingSegment, Segment: e.Number, Row: e.First, To: e.Last, Detail: cause.Error()})
	v.next = place{number: e.Number + 1, first: e.Last + 1, prev: e.Head}
}

// Checkpoints lists the checkpoints of a scope, newest first: those of segments
// before a number (0: all), at most limit. Next is the number to go on with, 0 if
// there are no more.
func (r *Reader) Checkpoints(ctx context.Context, scope ledger.Scope, before uint64, limit int) (list []Checkpoint, next uint64, err error) {
	h, ok, err := r.Head(ctx, scope)
	if err != nil || !ok {
		return nil, 0, err
	}
	last := h.Number
	if before > 0 {
		last = min(last, before-1)
	}
	if last < h.Kept.Number {
		return nil, 0, nil
	}
	found, err := r.list(ctx, scope, h.Kept.Number, last, Range{Newest: true, Limit: limit})
	if err != nil {
		return nil, 0, err
	}
	for _, e := range found {
		list = append(list, e.Checkpoint(scope, h.Tenant))
		next = e.Number
	}
	if next <= h.Kept.Number {
		next = 0
	}
	return list, next, nil
}

// SigningKeys lists every public key that checkpoints were signed with, oldest
// first.
func (r *Reader) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	return SigningKeys(ctx, r.store)
}
