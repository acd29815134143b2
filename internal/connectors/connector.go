package connectors

import (
	"context"
	"net/http"
	"time"
)

// Connector knows one vendor. Every method is pure: same arguments, same
// result, no I/O, no clock. A value is immutable and may be used by many
// goroutines.
type Connector interface {
	// Spec describes the connector. Callers must not change what it returns.
	Spec() Spec

	// Plan builds the request for op, without credentials. An *InputError is
	// the agent's to fix; any other error is the operator's (a connection's
	// config or base URL, a manifest that cannot express this). Whatever the
	// error, nothing has been sent.
	Plan(ctx context.Context, op Op) (Request, error)

	// Judge says what an answer means. Any doubt is a Verdict with Outcome
	// Unknown, and so is the verdict beside a non-nil error; the error is for
	// the log. It may be called again on a stored answer at any later time.
	Judge(ctx context.Context, op Op, a Answer) (Verdict, error)

	// Check plans how a held write can be found out about: the steps in the
	// order to try them, none where a person has to look. The order and number
	// of steps depend on the action alone, so an index names the same step
	// each time.
	Check(ctx context.Context, op Op) ([]CheckStep, error)

	// MatchLookup reads the answer to the lookup at index step of Check. An
	// answer that cannot be read, or an error, finds Doubtful and settles
	// nothing.
	MatchLookup(ctx context.Context, op Op, step int, a Answer) (Found, error)

	// PlanTest builds the harmless read that shows whether a connection works,
	// from its config and base URL. ErrPlan if Spec.Tests is false.
	PlanTest(ctx context.Context, config []byte, baseURL string) (Request, error)

	// JudgeTest says whether the answer to it is the one of a connection that
	// works. Whatever cannot be told is no.
	JudgeTest(ctx context.Context, config []byte, a Answer) (bool, error)
}

// Op is one write as a connector sees it. All of it is fixed at the claim and
// stored, so that planning it again gives the same bytes.
type Op struct {
	// Action is the name of one of Spec.Actions.
	Action string
	// Params is the agent's body: a JSON object that passed the JSON guard and
	// Spec.ValidateInput, with the digits the agent sent.
	Params []byte
	// Config is the connection's config, a JSON object that passed
	// Spec.ValidateConfig. Empty means {}.
	Config []byte
	// BaseURL is the connection's base URL, which passed Spec.CheckBaseURL.
	// Empty means Spec.BaseURL.Default.
	BaseURL string
	// Marker is a keyed hash that names this write at the vendor. It is 16 to
	// 64 lower-case letters and digits, so it is safe to plant anywhere.
	Marker string
	// Uncorrelated: nothing of the write may carry the marker.
	Uncorrelated bool `json:",omitempty"`
	// VendorKey is what ActionSpec.VendorKey returned at the claim; empty for
	// an action without an idempotency rule.
	VendorKey string
	// Started is the store's time of the claim.
	Started time.Time
}

// Request is a planned request, without credentials.
type Request struct {
	Method string
	URL    string
	Header http.Header // canonical names
	// Body is the finished bytes; nil for none. A resend must be byte-identical.
	Body []byte
}

// Clone returns a copy that shares nothing with r.
func (r Request) Clone() Request {
	r.Header = r.Header.Clone()
	if r.Body != nil {
		r.Body = append([]byte{}, r.Body...)
	}
	return r
}

// Answer is what a vendor answered, as the wire received it.
type Answer struct {
	Status int
	Header http.Header // canonical names
	// Body is the body after content decoding, meaningful only if Whole.
	Body []byte
	// Whole says that Body is every byte of the body. It is false for a body
	// that was larger than the gateway keeps: a rule that never looks at the
	// body can still decide, any other is Unknown. A body that was cut is no
	// answer at all and must not be judged.
	Whole bool
}
