package dedupe

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"holdfast.dev/gateway/internal/identity"
)

// ActionID names one acquired write: 48 bits of milliseconds, 80 random bits
// (a ULID), so ids sort by time of claim.
type ActionID [16]byte

const actionPrefix = "act_"

// NewActionID returns a fresh id for an action claimed at about t.
func NewActionID(t time.Time) ActionID {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(t)) // only fails after the year 10889
	_, _ = rand.Read(id[6:])
	return ActionID(id)
}

// String returns the public form, "act_" and 26 characters of Crockford base32.
func (id ActionID) String() string { return actionPrefix + ulid.ULID(id).String() }

// ParseActionID reads the public form; ErrNotFound if it is no action's id.
func ParseActionID(s string) (ActionID, error) {
	rest, ok := strings.CutPrefix(s, actionPrefix)
	if !ok {
		return ActionID{}, ErrNotFound
	}
	id, err := ulid.ParseStrict(rest)
	if err != nil || id.String() != rest {
		return ActionID{}, ErrNotFound
	}
	return ActionID(id), nil
}

// Owner is the token of the process and call that claimed a write. Owners never
// change: a write whose owner is lost is held, not handed on.
type Owner [16]byte

// NewOwner returns a random token.
func NewOwner() Owner {
	var o Owner
	_, _ = rand.Read(o[:])
	return o
}

// State is where a write is in its life.
type State byte

// The states of a write. InFlight and Held are unsettled; NotDone is a write
// that ended without an effect and whose identity is free again.
const (
	InFlight  State = 1
	Succeeded State = 2
	Refused   State = 3
	Held      State = 4
	NotDone   State = 5
	Lapsed    State = 6
)

var stateNames = map[State]string{
	InFlight: "in_flight", Succeeded: "succeeded", Refused: "refused",
	Held: "held", NotDone: "not_done", Lapsed: "lapsed",
}

func (s State) String() string {
	if n, ok := stateNames[s]; ok {
		return n
	}
	return fmt.Sprintf("state(%d)", byte(s))
}

// ParseState reads a state's name.
func ParseState(s string) (State, bool) {
	for st, name := range stateNames {
		if name == s {
			return st, true
		}
	}
	return 0, false
}

// Unsettled says whether the write may still turn out either way.
func (s State) Unsettled() bool { return s == InFlight || s == Held }

// Evidence says what a settled state rests on.
type Evidence string

// Kinds of evidence.
const (
	ByVendor   Evidence = "vendor"
	ByCheck    Evidence = "check"
	ByOperator Evidence = "operator"
)

// Outcome is what is known of the exchange with the vendor. It holds fixed
// words and what the connector's rules chose to show, never a body.
type Outcome struct {
	Phase        string // not_sent, sent_no_answer, answered
	Reason       string
	VendorStatus int
	Code         string
	Message      string
}

// Attempt is one try to put the request on the wire.
type Attempt struct {
	At       time.Time
	Duration time.Duration
	Phase    string
	Reason   string
	Status   int
}

// Change is one line of an action's history.
type Change struct {
	At     time.Time
	Event  Event
	By     string // id of the API key that caused it, "" for the gateway itself
	Detail string // an operator's note, or a fixed word
}

// Previous names the action an identity was bound to before.
type Previous struct {
	ID    ActionID
	State State
	At    time.Time
}

// Record is all that is remembered of one action, except the answer and the
// sealed request, which are kept beside it. Times are the store's, to the
// millisecond.
type Record struct {
	ID          ActionID
	Identity    identity.Identity
	Fingerprint identity.Fingerprint
	Source      identity.Source
	State       State
	Owner       Owner

	ConnectionID string
	Connection   string
	Action       string
	Connector    string   // name@version
	ConnectorSum [32]byte // sha256 of the manifest the write was claimed with

	KeyID     string // API key that claimed
	RequestID string // request that claimed

	Created   time.Time
	LeaseEnd  time.Time
	WindowEnd time.Time // end of replays
	HoldUntil time.Time // end of holding
	Deadline  time.Time // after it a lost owner can no longer send
	Settled   time.Time // when the present state was reached; zero in flight

	Marker       string // keyed hash planted at the vendor
	VendorKey    string // idempotency key given to the vendor; "" if it takes none
	VendorKeyEnd time.Time

	// Of a held write's checks. NextCheck is when the gateway itself looks
	// (again), zero if it does not; while a check runs it is the end of that
	// check's lease, so that another replica takes over from one that died.
	NextCheck time.Time
	Checker   Owner     // token of the last check
	CheckEnd  time.Time // end of the running check's lease; zero: none runs
	SentUntil time.Time // after it no byte of a resend can leave; zero: never resent
	Checks    int       // how many have ended

	OwnerLost bool // held because the lease lapsed
	Resent    bool // a check has put the request on the wire again, or was about to
	Resolved  bool // an operator or a check settled it
	Evidence  Evidence

	Outcome  Outcome
	Attempts []Attempt
	History  []Change
	Previous *Previous
}

// maxHistory bounds an action's history; the first lines say how it began and
// the last how it stands, so the middle goes.
const maxHistory = 40

func (r *Record) note(ch Change) {
	if len(r.History) >= maxHistory {
		r.History = append(r.History[:maxHistory/2:maxHistory/2], r.History[maxHistory/2+1:]...)
	}
	r.History = append(r.History, ch)
}

// attempted adds an attempt; of very many only the first and the last ones stay.
func (r *Record) attempted(a Attempt) {
	if len(r.Attempts) >= maxHistory {
		r.Attempts = append(r.Attempts[:maxHistory/2:maxHistory/2], r.Attempts[maxHistory/2+1:]...)
	}
	r.Attempts = append(r.Attempts, a)
}

// clone returns a copy that shares nothing a transition changes.
func (r *Record) clone() *Record {
	c := *r
	c.Attempts = append([]Attempt(nil), r.Attempts...)
	c.History = append([]Change(nil), r.History...)
	return &c
}

// over says whether the record no longer binds its identity (claim rule 1).
func (r *Record) over(now time.Time) bool {
	switch r.State {
	case InFlight:
		return false
	case Held:
		return !now.Before(r.HoldUntil)
	case Succeeded, Refused:
		return !now.Before(r.WindowEnd)
	default: // NotDone, Lapsed
		return true
	}
}

// checking says whether a check holds the write.
func (r *Record) checking(now time.Time) bool { return now.Before(r.CheckEnd) }

// LastSent is the latest moment at which a byte of this write may have been on
// its way to the vendor.
func (r *Record) LastSent() time.Time {
	last := r.Created
	for _, a := range r.Attempts {
		last = later(last, a.At.Add(a.Duration))
	}
	if r.OwnerLost {
		last = later(last, r.Deadline)
	}
	return later(last, r.SentUntil)
}

// stillPossible says whether a lost owner might yet send.
func (r *Record) stillPossible(now time.Time) bool { return r.OwnerLost && now.Before(r.Deadline) }

// keepsKey says whether the write was found not done after it may have been
// sent, or was itself released on the way to repeating such a one. Only those
// stay bound to their identity, and so can be a NotDone write's Previous.
func (r *Record) keepsKey() bool {
	return r.State == NotDone && (r.Resolved || r.Previous != nil && r.Previous.State == NotDone)
}

// leaseOver says whether the owner's lease has lapsed.
func (r *Record) leaseOver(now time.Time) bool {
	return r.State == InFlight && !now.Before(r.LeaseEnd)
}
