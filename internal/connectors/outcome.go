package connectors

import "time"

// Outcome says what became of a write at the vendor.
type Outcome string

const (
	// Succeeded means the vendor did it.
	Succeeded Outcome = "succeeded"
	// Refused means the vendor definitely did not do it and will not.
	Refused Outcome = "refused"
	// Retryable means the vendor definitely did not do it; later it might.
	Retryable Outcome = "retryable"
	// Unknown means nobody can tell yet. It is never sent again by itself.
	Unknown Outcome = "unknown"
)

// Reason says why a write is retryable.
type Reason string

const (
	RateLimit   Reason = "rate_limit"
	Credential  Reason = "credential"
	Unavailable Reason = "unavailable"
)

// Doubt says why a verdict is Unknown. It is a fixed word, fit for a metric.
type Doubt string

const (
	DoubtRule       Doubt = "rule"        // a rule of the connector says unknown
	DoubtNoRule     Doubt = "no_rule"     // no rule matched
	DoubtRuleFailed Doubt = "rule_failed" // a rule could not be decided
	DoubtBody       Doubt = "body"        // the body is not what its headers say
	DoubtStatus     Doubt = "status"      // the status is none of HTTP's final ones
	DoubtConnector  Doubt = "connector"   // the connector could not judge at all
)

// NoRule is Verdict.Rule where no rule decided.
const NoRule = -1

// Verdict is what Judge makes of an answer.
type Verdict struct {
	Outcome Outcome
	Doubt   Doubt // only with Unknown
	Rule    int   // index of the rule that decided, or failed; NoRule
	// Code and Message are the vendor's own words, bounded, free of control
	// characters, perhaps empty. They may echo what was sent: mask credentials
	// before they are shown or stored.
	Code    string
	Message string
	// Reason and RetryAfter come only with Retryable. RetryAfter is the
	// vendor's hint, at most a day, zero for none; it is not clamped further.
	Reason     Reason
	RetryAfter time.Duration
	// Result is the projection of a succeeded write as JSON, with the vendor's
	// digits. Nil means that the vendor's body itself is the result.
	Result []byte
}

// CheckKind says how a check step finds out.
type CheckKind string

const (
	// Resend repeats the stored bytes under the stored vendor key.
	Resend CheckKind = "resend"
	// Lookup reads from the vendor.
	Lookup CheckKind = "lookup"
)

// Absent says what finding nothing proves.
type Absent string

const (
	// StillUnknown: nothing.
	StillUnknown Absent = "still_unknown"
	// NotPerformed: the write was not done, if Settle has passed.
	NotPerformed Absent = "not_performed"
)

// CheckRule is what an action's manifest says about one check step.
type CheckRule struct {
	Kind CheckKind
	// Within bounds a Resend: it is forbidden once this much has passed since
	// Op.Started, because the vendor may have forgotten the key.
	Within time.Duration
	// Settle is how long after Op.Started a Lookup must wait before Absent may
	// be believed.
	Settle time.Duration
	// Match is the lookup's match expression, to show to people.
	Match  string
	Absent Absent
	// ByMarker: the look-up knows the write by the marker, so it finds nothing of
	// a write that was made without one.
	ByMarker bool
}

// CheckStep is one planned step of a check.
type CheckStep struct {
	CheckRule
	// Request is a Lookup's GET, without credentials. It is empty for a
	// Resend: that sends the stored bytes and nothing planned anew.
	Request Request
}

// FoundKind says what a lookup showed.
type FoundKind string

const (
	// FoundOne: exactly one record carries the marker; the write was done.
	FoundOne FoundKind = "one"
	// FoundNone: no record does; CheckRule.Absent says what that proves.
	FoundNone FoundKind = "none"
	// FoundMany: more than one does; a person must look.
	FoundMany FoundKind = "many"
	// Doubtful: the answer could not be read.
	Doubtful FoundKind = "doubtful"
)

// Found is what MatchLookup makes of a lookup's answer.
type Found struct {
	Kind    FoundKind
	Matches int
	// Result is the projection of the one match as JSON, nil unless FoundOne.
	Result []byte
}
