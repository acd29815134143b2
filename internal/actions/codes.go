package actions

import (
	"time"

	"holdfast.dev/gateway/internal/dedupe"
)

// Code is a stable word for why a call was not answered with success. The api
// package maps each to a status; the contract lists them.
type Code string

// Codes of `do` and of the calls on actions.
const (
	InvalidJSON       Code = "invalid_json"
	InvalidRequest    Code = "invalid_request"
	InvalidBody       Code = "invalid_body"
	InvalidKey        Code = "invalid_key"
	Forbidden         Code = "forbidden"
	UnknownConnection Code = "unknown_connection"
	UnknownAction     Code = "unknown_action"
	NotFound          Code = "not_found"
	ConnectionPaused  Code = "connection_paused"
	TenantSuspended   Code = "tenant_suspended"
	InFlight          Code = "in_flight"
	NotHeld           Code = "not_held"
	StillPossible     Code = "still_possible"
	CheckRunning      Code = "check_running"
	KeyReused         Code = "key_reused"
	OutcomeUnknown    Code = "outcome_unknown"
	TwinUnsettled     Code = "twin_unsettled"
	AnswerNotSaved    Code = "answer_not_saved"
	VendorRefused     Code = "vendor_refused"
	RateLimited       Code = "rate_limited"
	VendorRateLimited Code = "vendor_rate_limited"
	NotSent           Code = "not_sent"
	VendorUnavailable Code = "vendor_unavailable"
	StoreUnavailable  Code = "store_unavailable"
	Draining          Code = "draining"
	AnswerUnreadable  Code = "stored_answer_unreadable"
	Internal          Code = "internal"
)

// Next tells the agent what to do. An empty Next means the code's own.
type Next string

// The moves an agent has.
const (
	FixRequest    Next = "fix_request"
	AskOperator   Next = "ask_operator"
	WaitAndRepeat Next = "wait_and_repeat"
	UseNewKey     Next = "use_new_key"
	CheckVendor   Next = "check_vendor"
	GetAction     Next = "get_action"
)

// FieldProblem is one thing wrong with a request, at a JSON Pointer into it.
type FieldProblem struct {
	Pointer string
	Reason  string
}

// Error is every answer of this package that is not a success. Its text is
// safe to log; Cause may be logged and is never shown.
type Error struct {
	Code   Code
	Detail string // one plain sentence an agent can act on
	Next   Next   // "" for the code's own
	// RetryAfter is a hint, already within the bounds of the contract; 0: none.
	RetryAfter time.Duration
	Fields     []FieldProblem

	// Record is the action the answer is about, nil where none exists.
	Record   *dedupe.Record
	Replayed bool // the outcome is from an earlier request
	Replays  int64
	Check    *Check  // on a held write
	Unsaved  *Answer // on AnswerNotSaved
	Cause    error
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Detail }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func fail(code Code, detail string) *Error { return &Error{Code: code, Detail: detail} }

func (e *Error) cause(err error) *Error { e.Cause = err; return e }

func (e *Error) about(rec *dedupe.Record) *Error { e.Record = rec; return e }

func (e *Error) after(d time.Duration) *Error { e.RetryAfter = d; return e }

func (e *Error) next(n Next) *Error { e.Next = n; return e }
