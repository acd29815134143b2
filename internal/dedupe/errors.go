package dedupe

import (
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Errors of this package. A store that cannot be asked shows as
// [ledger.ErrUnavailable]; nothing may be sent after any of them.
var (
	// ErrUnreadable: a stored record or answer cannot be decoded. The write it
	// belongs to is never sent again because of it.
	ErrUnreadable = errors.New("stored record is unreadable")
	// ErrGuard: a condition the claim was made under (the connection as it was
	// read) no longer holds. Nothing was claimed; read again and repeat.
	ErrGuard = errors.New("claim condition changed")
	// ErrNotFound: no such action in this scope.
	ErrNotFound = errors.New("no such action")
	// ErrNotHeld: the action is not held (any more).
	ErrNotHeld = errors.New("action is not held")
	// ErrNotOwner: the action belongs to another owner token.
	ErrNotOwner = errors.New("not the owner of this action")
	// ErrLeaseLost: the lease had lapsed before it was renewed. The call goes
	// on; its late answer settles the held record.
	ErrLeaseLost = errors.New("lease lost")
	// ErrLate: the answer came after the write had been resolved. It was
	// recorded and changed nothing.
	ErrLate = errors.New("answer came after the write was resolved")
)

// StillPossibleError refuses to resolve a write whose lost owner might yet
// send, or (AtVendor) which the vendor may yet do. After Until (store clock) it no
// longer can.
type StillPossibleError struct {
	Until, Now time.Time
	AtVendor   bool
}

func (e *StillPossibleError) Error() string {
	if e.AtVendor {
		return "the vendor may still do it"
	}
	return "the lost owner might still send"
}

// CheckRunningError refuses to check or resolve a write that is being checked.
// The check's lease ends at Until (store clock) unless it is renewed.
type CheckRunningError struct{ Until, Now time.Time }

func (e *CheckRunningError) Error() string { return "a check of this action is running" }

// UncertainError is returned by Claim when the step that would have acquired
// the identity got no answer: it may have been applied, or may yet be. Nothing
// was sent. The caller must repeat [Claims.Abandon] until the store confirms.
type UncertainError struct {
	Abandon Abandon
	Err     error
}

func (e *UncertainError) Error() string { return fmt.Sprintf("claim unconfirmed: %v", e.Err) }

// Unwrap returns the store's error.
func (e *UncertainError) Unwrap() error { return e.Err }

// errContended is returned when a rule had to be decided again too often. It
// reads as an unavailable store: nothing was applied.
var errContended = fmt.Errorf("step kept losing races: %w", ledger.ErrUnavailable)

// maxDecisions bounds how often one call decides again. Each time round,
// another step on the same identity has been applied, and a write has only a
// few transitions, so reaching the bound means something is broken.
const maxDecisions = 32
