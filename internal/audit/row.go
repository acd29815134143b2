package audit

import (
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Kinds of actors.
const (
	KindKey      = "key"      // a tenant's API key
	KindPlatform = "platform" // the host's admin key
	KindSystem   = "system"   // the gateway itself: sweep, reconciler, command line
)

// Actor is who did it. KeyID is the public part of an API key, never its
// secret; it is "" where no tenant key was used.
type Actor struct {
	Kind  string `json:"kind"`
	KeyID string `json:"key_id,omitempty"`
}

// System is the gateway acting by itself.
func System() Actor { return Actor{Kind: KindSystem} }

// Caller is who asks, and by which request. Whatever changes state takes one as
// a parameter and begins its rows with it.
type Caller struct {
	Tenant    string // the tenant's id as its users know it; "" for the platform
	Actor     Actor
	Front     string // rest, mcp, cli, or a background job's name
	RequestID string
	TraceID   string
}

// Row returns a row that begins with the caller.
func (c Caller) Row(e Event) Row {
	return Row{Event: e, Tenant: c.Tenant, Actor: c.Actor, Front: c.Front, RequestID: c.RequestID, TraceID: c.TraceID}
}

// Row is one audit row. Every string in it except Meta's is a word: at most
// [MaxWord] bytes of printable ASCII without blanks, quotes and backslashes.
// Encode writes [InvalidWord] in place of anything else.
//
// There is deliberately no member for anything an agent or a vendor sent,
// except Meta, which the contract makes for that purpose and bounds.
type Row struct {
	Event  Event
	At     time.Time // the store's, to the millisecond; set by Append
	Tenant string
	Actor  Actor
	Front  string

	RequestID string
	TraceID   string

	ActionID   string // act_…
	Connection string // name
	Action     string // name of the connector's action
	Identity   string // the short id, 16 hex digits
	KeySource  string // derived, supplied

	Outcome      string // a fixed word
	Reason       string // a fixed word
	VendorStatus int    // 0: no answer
	DurationMS   int64

	// Subject names what was administered where no other member does: the id of
	// the key created, the connector version registered.
	Subject string
	// Changed lists the members that an update changed, never their values.
	Changed []string

	Meta map[string]string // the agent's own labels
}

// Append dates the rows with the step's time and adds them to it.
func Append(step *ledger.Step, rows ...Row) {
	for _, r := range rows {
		r.At = step.At
		step.Rows = append(step.Rows, r.Encode())
	}
}

// Bounds of the agent's labels (CONTRACT 2) and of a row's words.
const (
	MaxMeta      = 16  // labels in a row
	MaxMetaBytes = 256 // bytes in a label's name or value
	MaxWord      = 128
	maxChanged   = 32
)

// InvalidWord stands in a row for a text that is not a word, such as the name
// of a connection that nobody could have created.
const InvalidWord = "(invalid)"

// word returns s if it is a word, "" if it is empty, or InvalidWord.
func word(s string) string {
	if len(s) > MaxWord {
		return InvalidWord
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return InvalidWord
		}
	}
	return s
}

// ErrUnreadable means stored bytes are not a row that this release can read.
var ErrUnreadable = fmt.Errorf("audit row: %w", ledger.ErrCorrupt)
