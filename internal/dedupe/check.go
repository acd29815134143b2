package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Probe is the evidence of one step of a check: fixed words and numbers, never
// anything of an answer.
type Probe struct {
	How     string // resend, lookup, judge
	Found   string // what it came to: one, none, many, doubtful, succeeded, refused, unknown, not_sent, …
	Status  int    // of the vendor's answer; 0: none came
	Matches int    // of a look-up
	SHA256  string // of the answer's body, in hex; "" if there was none
}

// String is the line of an action's history.
func (p Probe) String() string {
	s := fmt.Sprintf("%s: %s, status %d", p.How, p.Found, p.Status)
	if p.How == "lookup" {
		s += fmt.Sprintf(", matches %d", p.Matches)
	}
	if p.SHA256 != "" {
		s += ", sha256 " + p.SHA256
	}
	return s
}

// CheckHandle is a check's grip on a held write. It is not safe for concurrent
// use.
type CheckHandle struct {
	Scope  ledger.Scope
	Record *Record
	Token  Owner
	Now    time.Time // store time of the last confirmed step
}

// StartCheck takes a held write for a check: one lease long, renewed by
// [Claims.RenewCheck], at most one at a time over all replicas. ErrNotHeld if
// it is not held (any more), *StillPossibleError while its lost owner might yet
// send, *CheckRunningError while another check holds it; the handle beside such
// an error has only the record.
func (c *Claims) StartCheck(ctx context.Context, scope ledger.Scope, id ActionID, scribe Scribe) (*CheckHandle, error) {
	h := &CheckHandle{Scope: scope, Token: NewOwner()}
	for range maxDecisions {
		cur, _, now, err := c.read(ctx, scope, id)
		if err != nil {
			return nil, err
		}
		if again, err := c.needHeld(ctx, scope, cur, now, scribe); err != nil {
			return &CheckHandle{Scope: scope, Record: cur.Record}, err
		} else if again {
			continue
		}
		h.Record = cur.Record
		switch {
		case cur.checking(now):
			return h, &CheckRunningError{Until: cur.CheckEnd, Now: now}
		case cur.stillPossible(now):
			return h, &StillPossibleError{Until: cur.Deadline, Now: now}
		}
		rec := cur.clone()
		rec.Checker = h.Token
		c.hold(rec, now)
		s := c.rehold(cur, rec, now)
		s.Before = cur.HoldUntil
		if done, err := c.applyCheck(ctx, h, s, rec); done || err != nil {
			return h, err
		}
	}
	return nil, errContended
}

// hold extends a check's lease to one lease from now.
func (c *Claims) hold(rec *Record, now time.Time) {
	rec.CheckEnd = later(rec.CheckEnd, milli(now.Add(c.lease)))
	rec.NextCheck = rec.CheckEnd
}

// rehold is a step that changes a held record and leaves it held.
func (c *Claims) rehold(cur stored, rec *Record, now time.Time) *ledger.Step {
	s := c.touch(cur, now)
	s.Put = []ledger.Put{{Key: cur.key(), Data: encodeRecord(rec)}}
	s.Unindex, s.Index = heldEntries(cur.Record), heldEntries(rec)
	return s
}

func (c *Claims) applyCheck(ctx context.Context, h *CheckHandle, s *ledger.Step, rec *Record) (bool, error) {
	res, err := c.store.Apply(ctx, h.Scope, *s)
	if err != nil {
		return false, fmt.Errorf("check action: %w", err)
	}
	if res.Applied {
		h.Record, h.Now = rec, res.Now
	}
	return res.Applied, nil
}

// heldBy reads the write a check holds; ErrLeaseLost if it does not hold it any
// more.
func (c *Claims) heldBy(ctx context.Context, h *CheckHandle) (stored, time.Time, error) {
	cur, _, now, err := c.read(ctx, h.Scope, h.Record.ID)
	if err == nil && (cur.State != Held || cur.Checker != h.Token || !cur.checking(now)) {
		err = ErrLeaseLost
	}
	return cur, now, err
}

// RenewCheck extends a check's lease by one lease from now. ErrLeaseLost means
// that the check has lost the write: its owner answered after all, or the
// lease had lapsed.
func (c *Claims) RenewCheck(ctx context.Context, h *CheckHandle) error {
	for range maxDecisions {
		cur, now, err := c.heldBy(ctx, h)
		if err != nil {
			return err
		}
		rec := cur.clone()
		c.hold(rec, now)
		s := c.rehold(cur, rec, now)
		s.Before = cur.CheckEnd
		if done, err := c.applyCheck(ctx, h, s, rec); done || err != nil {
			return err
		}
	}
	return errContended
}

// MarkResent records, durably and before the first byte, that a check is about
// to send the stored request once more. The resend must leave within two thirds
// of a lease of the moment this was called, on a clock that counts suspension;
// after one lease nothing of it can. It renews the check's lease.
func (c *Claims) MarkResent(ctx context.Context, h *CheckHandle, by string, scribe Scribe) error {
	for range maxDecisions {
		cur, now, err := c.heldBy(ctx, h)
		if err != nil {
			return err
		}
		rec := cur.clone()
		c.hold(rec, now)
		rec.Resent = true
		rec.SentUntil = later(rec.SentUntil, milli(now.Add(c.lease)))
		rec.note(Change{At: now, Event: EventChecked, By: by, Detail: "resend: sending"})
		s := c.rehold(cur, rec, now)
		s.Before = cur.CheckEnd
		s.Rows = [][]byte{scribe(Transition{Event: EventChecked, At: now, Record: rec, Probe: &Probe{How: "resend", Found: "sending"}})}
		if done, err := c.applyCheck(ctx, h, s, rec); done || err != nil {
			return err
		}
	}
	return errContended
}

// CheckEnding is what a check came to.
type CheckEnding struct {
	// State is Succeeded, Refused, NotDone (the write was not done and the next
	// one runs) or Held (still unknown).
	State  State
	Resend bool // it rests on the answer to a resend
	// Outcome replaces the record's, nil keeps it.
	Outcome *Outcome
	Attempt *Attempt // of a resend
	Answer  []byte   // of a success
	Probes  []Probe
	// Next plans the next automatic check of a write that stays held; zero: none.
	Next   time.Time
	By     string // id of the API key that asked for it, "" for the gateway itself
	Scribe Scribe
}

func (e *CheckEnding) event(ownerLost bool) Event {
	switch {
	case e.State == NotDone:
		return EventNotDone
	case e.Resend && ownerLost:
		return EventRecovered
	case e.State == Refused:
		return EventRefused
	default:
		return EventSucceeded
	}
}

// EndCheck ends a check and settles the write if the check has shown how it
// stands. What proves that it was not done counts only past the write's
// deadline and once no resend can leave any more; before that the write stays
// held, so look at the state of the record that is returned.
//
// A repeat of an end that was applied returns the same. ErrNotHeld: the write
// was settled meanwhile and the check says nothing else; ErrLate: it says
// something else, which was recorded and changed nothing. ErrLeaseLost: another
// check has taken over; only a success still counts then.
func (c *Claims) EndCheck(ctx context.Context, h *CheckHandle, e CheckEnding) (*Record, error) {
	for range maxDecisions {
		cur, twins, now, err := c.read(ctx, h.Scope, h.Record.ID)
		if err != nil {
			return nil, err
		}
		if cur.Checker == h.Token && cur.CheckEnd.IsZero() && (cur.State == Held || cur.Evidence == ByCheck) {
			return cur.Record, nil // the same end, applied before
		}
		s, rec, verdict := c.endStep(cur, h.Token, &e, twins, now)
		done, err := c.applyCheck(ctx, h, s, rec)
		if err != nil {
			return nil, err
		}
		if done {
			return rec, verdict
		}
	}
	return nil, errContended
}

// endStep is the rule of a check's end. The error is returned once the step is
// applied.
func (c *Claims) endStep(cur stored, token Owner, e *CheckEnding, twins twinList, now time.Time) (*ledger.Step, *Record, error) {
	switch state := e.State; {
	case cur.State != Held && (state == Held || state == cur.State):
		return c.onlyRows(cur, e, now), cur.Record, ErrNotHeld
	case cur.State != Held || cur.over(now) && state != Held:
		s := c.onlyRows(cur, e, now)
		s.Rows = append(s.Rows, e.Scribe(Transition{Event: EventLateAnswer, At: now, Record: cur.Record}))
		return s, cur.Record, ErrLate
	case state == Succeeded:
		return c.settleCheck(cur, e, twins, now)
	case cur.Checker != token:
		return c.onlyRows(cur, e, now), cur.Record, ErrLeaseLost
	case state == Held || now.Before(cur.Deadline) || state == NotDone && now.Before(cur.SentUntil):
		return c.keepHeld(cur, e, now)
	default:
		return c.settleCheck(cur, e, twins, now)
	}
}

// rows are those of the steps the check took, one each.
func (e *CheckEnding) rows(rec *Record, now time.Time) [][]byte {
	rows := make([][]byte, 0, len(e.Probes)+1)
	for i := range e.Probes {
		rows = append(rows, e.Scribe(Transition{Event: EventChecked, At: now, Record: rec, Probe: &e.Probes[i]}))
	}
	if len(rows) == 0 {
		rows = append(rows, e.Scribe(Transition{Event: EventChecked, At: now, Record: rec}))
	}
	return rows
}

func (c *Claims) onlyRows(cur stored, e *CheckEnding, now time.Time) *ledger.Step {
	s := c.touch(cur, now)
	s.Rows = e.rows(cur.Record, now)
	return s
}

// checked is the record after a check, whatever it came to.
func (e *CheckEnding) checked(cur stored, now time.Time) *Record {
	rec := cur.clone()
	rec.CheckEnd = time.Time{}
	rec.Checks++
	for _, p := range e.Probes {
		rec.note(Change{At: now, Event: EventChecked, By: e.By, Detail: p.String()})
	}
	if e.Attempt != nil {
		rec.attempted(*e.Attempt)
	}
	return rec
}

func (c *Claims) keepHeld(cur stored, e *CheckEnding, now time.Time) (*ledger.Step, *Record, error) {
	rec := e.checked(cur, now)
	rec.NextCheck = milliOrZero(e.Next)
	s := c.rehold(cur, rec, now)
	s.Rows = e.rows(rec, now)
	return s, rec, nil
}

func (c *Claims) settleCheck(cur stored, e *CheckEnding, twins twinList, now time.Time) (*ledger.Step, *Record, error) {
	rec := e.checked(cur, now)
	rec.Resolved, rec.Evidence = true, ByCheck
	if e.Outcome != nil {
		rec.Outcome = *e.Outcome
	}
	s := c.move(cur, rec, e.State, e.Answer, twins, now)
	event := e.event(cur.OwnerLost)
	rec.note(Change{At: now, Event: event, By: e.By})
	s.Put[0].Data = encodeRecord(rec)
	s.Before = cur.HoldUntil
	s.Rows = append(e.rows(rec, now), e.Scribe(Transition{Event: event, At: now, Record: rec}))
	return s, rec, nil
}

// Postpone plans the next automatic check of a held write that none holds. It
// is no change of the write, so it leaves no row. It is no error if the write
// is not held any more.
func (c *Claims) Postpone(ctx context.Context, scope ledger.Scope, id ActionID, until time.Time) error {
	for range maxDecisions {
		cur, _, now, err := c.read(ctx, scope, id)
		if errors.Is(err, ErrNotFound) || err == nil && (cur.State != Held || cur.checking(now)) {
			return nil
		}
		if err != nil {
			return err
		}
		rec := cur.clone()
		rec.NextCheck = milliOrZero(until)
		res, err := c.store.Apply(ctx, scope, *c.rehold(cur, rec, now))
		if err != nil {
			return fmt.Errorf("postpone check: %w", err)
		}
		if res.Applied {
			return nil
		}
	}
	return errContended
}

// DueChecks returns held writes whose automatic check is due, the longest due
// first, at most limit of them.
func (c *Claims) DueChecks(ctx context.Context, scope ledger.Scope, limit int) ([]*Record, error) {
	entries, err := c.store.Entries(ctx, scope, ledger.EntryRange{Index: ledger.ByCheck, To: c.store.Now(), Limit: limit})
	if err != nil {
		return nil, fmt.Errorf("list due checks: %w", err)
	}
	found, err := c.load(ctx, scope, entries)
	if err != nil {
		return nil, err
	}
	due := make([]*Record, 0, len(found))
	for i, f := range found {
		switch {
		case f.Record == nil: // gone, or it cannot be read
		case !standsAt(f.Record, entries[i]):
			cur, _, now, err := c.read(ctx, scope, f.Record.ID)
			if err == nil && !standsAt(cur.Record, entries[i]) {
				err = c.mend(ctx, scope, entries[i], cur, now)
			}
			if err != nil {
				return nil, err
			}
		case !f.Record.checking(f.Now):
			due = append(due, f.Record)
		}
	}
	return due, nil
}

// Raw returns the sealed answer of a held write that could not be judged, or
// ErrNotFound.
func (c *Claims) Raw(ctx context.Context, scope ledger.Scope, id ActionID) ([]byte, error) {
	return c.kept(ctx, scope, actionKey(ledger.Raw, id))
}

func milliOrZero(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return milli(t)
}
