package actions

import (
	"time"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/tenants"
)

// Request is one `do`, decoded and authenticated.
type Request struct {
	Principal  tenants.Principal
	Connection string
	Action     string
	Body       []byte // raw JSON as the agent sent it; nil means {}
	Key        string // the agent's own idempotency key, "" to derive one

	RetryRefused   bool
	AllowDuplicate bool
	DryRun         bool
	Meta           map[string]string
	Wait           time.Duration // how long a duplicate of a running write waits

	RequestID string
	Front     string // rest, mcp
}

// Reply is a success: a write that was done, now or before, or the answer of a
// dry run.
type Reply struct {
	Record   *dedupe.Record
	Answer   *Answer
	Replayed bool
	Replays  int64
	Would    string // of a dry run: execute, replay, in_flight, held, refused, key_reused
}

// View is an action as it is looked at.
type View struct {
	Record  *dedupe.Record
	Answer  *Answer // of a success whose window has not ended
	Replays int64
	Check   *Check // of a held write
	Warning string // beside a resolution that a person should know more about

	// Lost is the id, and LostAt about the time of the claim, of an action in a
	// list that cannot be read; the rest is empty then.
	Lost   string
	LostAt time.Time
}

// Check tells a person or an agent how to find out about a held write.
type Check struct {
	Automatic bool
	How       string // resend, lookup, manual
	Detail    string // one plain sentence
	Method    string // of a look-up's request
	URL       string
	Match     string
	Settle    time.Duration
}

// CheckResult is what a check of a held write came to.
type CheckResult struct {
	Verdict string // succeeded, not_performed, still_unknown, conflict
	Detail  string
	View    View
}

// Resolution is an operator's word on a held write.
type Resolution struct {
	Succeeded bool
	Result    []byte // JSON, of a success; nil means null
	Note      string
}
