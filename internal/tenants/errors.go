package tenants

import (
	"errors"
	"fmt"
	"strconv"
)

// Errors of this package. A store that cannot be asked shows as
// [ledger.ErrUnavailable], a record that cannot be read as [ledger.ErrCorrupt].
var (
	// ErrUnauthenticated is the one answer to every credential that is not good:
	// malformed, unknown, wrong, revoked, expired, of a deleted tenant.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrNotFound: no such tenant, or no such key of this tenant.
	ErrNotFound = errors.New("no such tenant or key")
	// ErrExists: there is a tenant of this id.
	ErrExists = errors.New("tenant exists")
	// ErrUnsettled: the tenant has writes in flight or held, and is not deleted.
	ErrUnsettled = errors.New("tenant has unsettled writes")
	// ErrCursor: a cursor that this listing did not return.
	ErrCursor = errors.New("cursor is not one of this listing")
	// ErrLimit: a page size outside 1..MaxPage.
	ErrLimit = fmt.Errorf("limit must be 1 to %d", MaxPage)
)

// Problem is one thing wrong with what was asked for.
type Problem struct {
	Pointer string // RFC 6901 JSON Pointer into the request
	Reason  string // one plain sentence; it repeats no value
}

// InvalidError lists everything that is wrong with a request.
type InvalidError struct {
	Problems []Problem // at least one
}

// Error names the first problem and counts the rest.
func (e *InvalidError) Error() string {
	first := e.Problems[0]
	text := fmt.Sprintf("invalid at %s: %s", strconv.Quote(first.Pointer), first.Reason)
	if more := len(e.Problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// problems gathers what a validation finds.
type problems []Problem

func (p *problems) add(pointer, reason string) {
	*p = append(*p, Problem{Pointer: pointer, Reason: reason})
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &InvalidError{Problems: p}
}
