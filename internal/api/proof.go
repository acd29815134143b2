package api

import (
	"context"
	"net/http"
	"strconv"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/ledger"
)

// prover says what a tenant's audit log proves.
type prover interface {
	Verify(ctx context.Context, scope ledger.Scope) (archive.Report, error)
	Checkpoints(ctx context.Context, scope ledger.Scope, before uint64, limit int) ([]archive.Checkpoint, uint64, error)
	SigningKeys(ctx context.Context) ([]archive.SigningKey, error)
}

type proofHandler struct {
	proofs prover
	turns  chan struct{}
}

// verifiesAtOnce bounds the logs that are read at the same time: each takes a
// core for as long as it lasts.
const verifiesAtOnce = 2

func newProofHandler(p prover) proofHandler {
	return proofHandler{proofs: p, turns: make(chan struct{}, verifiesAtOnce)}
}

func (h *proofHandler) verify(c *call) error { return h.verifyFor(c, c.who.Scope) }

// verifyFor reads the whole log of a scope. Parameters that the caller has read
// itself are named in also.
func (h *proofHandler) verifyFor(c *call, scope ledger.Scope, also ...string) error {
	if err := c.query(also...).err(); err != nil {
		return err
	}
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-c.ctx().Done():
		return c.ctx().Err()
	}
	report, err := h.proofs.Verify(c.ctx(), scope)
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, encodeProof(report))
}

func encodeProof(r archive.Report) []byte {
	o := newObject(1024)
	o.flag("whole", len(r.Findings) == 0)
	o.text("tenant", r.Tenant)
	o.text("scope", r.Scope.String())
	o.number("segments", int64(r.Segments))
	o.number("rows", int64(r.Rows))
	if r.Begins > 0 {
		o.number("begins_at_row", int64(r.Begins))
	}
	if r.Proven > 0 {
		o.number("proven_through_row", int64(r.Proven))
		o.time("proven_through", r.ProvenAt)
	}
	if r.Final {
		o.flag("final", true)
	}
	o.list("findings", len(r.Findings), func(i int, o *object) {
		f := r.Findings[i]
		o.text("kind", f.Kind)
		for _, n := range []struct {
			name  string
			value uint64
		}{{"segment", f.Segment}, {"row", f.Row}, {"to_row", f.To}} {
			if n.value > 0 {
				o.number(n.name, int64(n.value))
			}
		}
		o.text("detail", f.Detail)
	})
	if r.More > 0 {
		o.number("more_findings", int64(r.More))
	}
	return o.bytes()
}

func (h *proofHandler) checkpoints(c *call) error { return h.checkpointsFor(c, c.who.Scope) }

func (h *proofHandler) checkpointsFor(c *call, scope ledger.Scope, also ...string) error {
	q := c.query(append(also, "limit", "cursor")...)
	limit, before := q.limit(), q.number("cursor")
	if err := q.err(); err != nil {
		return err
	}
	list, next, err := h.proofs.Checkpoints(c.ctx(), scope, before, limit)
	if err != nil {
		return err
	}
	keys, err := h.proofs.SigningKeys(c.ctx())
	if err != nil {
		return err
	}
	o := newObject(512 * (len(list) + 1))
	o.list("keys", len(keys), func(i int, o *object) {
		o.text("key_id", keys[i].KeyID)
		o.text("public_key", archive.FormatKey(keys[i].Key))
		o.time("since", keys[i].Since)
	})
	o.list("data", len(list), func(i int, o *object) {
		line := list[i].Line()
		o.members(line[:len(line)-1])
	})
	if next > 0 {
		o.text("next_cursor", strconv.FormatUint(next, 10))
	}
	return c.json(http.StatusOK, o.bytes())
}

// number reads a cursor that is the number of a segment, 0 if it is absent.
func (q *query) number(name string) uint64 {
	s := q.text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		q.refuse(name, "this is not a cursor of this list")
	}
	return n
}
