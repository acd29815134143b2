package connectors

import (
	"crypto/sha256"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout is the timeout of an action that names none.
const DefaultTimeout = 30 * time.Second

// Limits of an action's own numbers (CONTRACT 4).
const (
	MaxTimeout = 10 * time.Minute
	MinWindow  = 60 * time.Second
	MaxWindow  = 720 * time.Hour
)

// Sum identifies the exact bytes a connector was made from: their SHA-256.
type Sum [sha256.Size]byte

// Spec describes a connector to the rest of the gateway.
type Spec struct {
	Name    string // lower case, such as "stripe"
	Version string // semantic version, three numbers
	Sum     Sum    // of the manifest's bytes

	Docs      string // a page of the vendor's, may be empty
	VendorAPI string // the vendor's API version, may be empty

	Auth    Auth
	Config  *Schema // of a connection's config; nil: only {} is accepted
	BaseURL BaseURL
	Redact  Redact
	Limits  RateLimits
	Tests   bool // there is a test call

	Actions map[string]ActionSpec
}

// Major returns "name@major", which is what a connection pins.
func (s Spec) Major() string {
	major, _, _ := strings.Cut(s.Version, ".")
	return s.Name + "@" + major
}

// ActionSpec describes one write a connector offers.
type ActionSpec struct {
	Name        string
	Description string
	Effect      string  // create, update or delete
	Input       *Schema // of the agent's body

	Timeout time.Duration // of the whole exchange
	Window  time.Duration // replay window; 0: the gateway's

	Ignore        []string // JSON Pointers left out of the identity
	ExposeHeaders []string // vendor headers shown in the answer, canonical names

	Idempotency *Idempotency // nil: the vendor has no key for this action
	Outcomes    []Outcome    // of each rule, in order; Verdict.Rule is an index
	Checks      []CheckRule

	// MarkerFixed: the request carries the marker and cannot do without it.
	MarkerFixed bool
}

// UsableChecks are those that can find a write out, made with or without a marker.
func (a ActionSpec) UsableChecks(op Op) []CheckRule {
	var list []CheckRule
	for _, rule := range a.Checks {
		if rule.Usable(op) {
			list = append(list, rule)
		}
	}
	return list
}

// Usable says whether a check can find out about a write.
func (r CheckRule) Usable(op Op) bool { return !r.ByMarker || !op.Uncorrelated }

// Redact names what must not be logged, as JSON Pointers.
type Redact struct {
	Params   []string
	Response []string
}

// RateLimits names the vendor's rate-limit headers and an optional budget of
// our own. Empty and zero mean none.
type RateLimits struct {
	Limit, Remaining, ResetSeconds, ResetEpoch, RetryAfter string // header names

	Scope string // "connection" or "connector": what the vendor counts by

	BudgetRequests int
	BudgetPer      time.Duration
}

// ValidateInput checks an agent's body against an action's input schema. The
// error is an *InputError, or ErrUnknownAction.
func (s Spec) ValidateInput(action string, params []byte) error {
	a, ok := s.Actions[action]
	if !ok {
		return ErrUnknownAction
	}
	return a.Input.Validate(params)
}

// ValidateConfig checks a connection's config. The error is an *InputError.
func (s Spec) ValidateConfig(config []byte) error {
	if len(config) == 0 {
		config = []byte("{}")
	}
	return s.Config.Validate(config)
}

// MajorOf splits a "name@major" pin.
func MajorOf(pin string) (name string, major int, ok bool) {
	name, digits, found := strings.Cut(pin, "@")
	major, err := strconv.Atoi(digits)
	if !found || name == "" || err != nil || major < 0 || strconv.Itoa(major) != digits {
		return "", 0, false
	}
	return name, major, true
}
