package connectors

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors of the contract. None carries a value, a key or a credential.
var (
	// ErrUnknownAction means the connector has no action of that name.
	ErrUnknownAction = errors.New("unknown action")
	// ErrUnknownConnector means no version of that connector is known.
	ErrUnknownConnector = errors.New("unknown connector")
	// ErrTaken means a name and version stand for other bytes already.
	ErrTaken = errors.New("version stands for another manifest")
	// ErrInUse means connections pin a connector and nothing else would serve
	// them.
	ErrInUse = errors.New("connector in use")
	// ErrBaseURL means a base URL is not one the connector may talk to.
	ErrBaseURL = errors.New("base URL not allowed")
	// ErrCredentials means the credentials do not fit what auth asks for.
	ErrCredentials = errors.New("credentials do not fit")
	// ErrAuthType means the kind of auth cannot be applied by this release.
	ErrAuthType = errors.New("kind of auth cannot be applied")
	// ErrVendorKey means a vendor key of enough entropy does not fit.
	ErrVendorKey = errors.New("vendor key does not fit")
	// ErrPlan means a request cannot be planned for a reason the agent cannot
	// mend.
	ErrPlan = errors.New("request cannot be planned")
)

// Problem is one thing wrong with a document.
type Problem struct {
	// Pointer is the place, as an RFC 6901 JSON Pointer; "" is the whole.
	Pointer string
	// Reason is one plain sentence. It never repeats a value.
	Reason string
}

// InputError says what is wrong with the agent's body, or with a config. It
// becomes the answer invalid_body.
type InputError struct {
	Problems []Problem // at least one
}

// Invalid returns an *InputError of one problem.
func Invalid(pointer, reason string) *InputError {
	return &InputError{Problems: []Problem{{Pointer: pointer, Reason: reason}}}
}

// Error names the first problem and counts the rest. The pointer is quoted: it
// holds member names, and those are the sender's.
func (e *InputError) Error() string {
	if len(e.Problems) == 0 {
		return "invalid input"
	}
	first := e.Problems[0]
	text := fmt.Sprintf("invalid input at %s: %s", strconv.Quote(first.Pointer), first.Reason)
	if more := len(e.Problems) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// ManifestProblem is one thing wrong with a manifest.
type ManifestProblem struct {
	Line    int    // 1-based; 0 where no line can be named
	Pointer string // place in the manifest as a JSON Pointer, "" for the whole
	Reason  string
}

// ManifestError says why a manifest was refused.
type ManifestError struct {
	File     string // as the caller named it, may be empty
	Problems []ManifestProblem
}

// Error writes one line per problem, as compilers do.
func (e *ManifestError) Error() string {
	lines := make([]string, 0, len(e.Problems))
	file := e.File
	if file == "" {
		file = "manifest"
	}
	for _, p := range e.Problems {
		place := file
		if p.Line > 0 {
			place += ":" + strconv.Itoa(p.Line)
		}
		if p.Pointer != "" {
			place += " (" + p.Pointer + ")"
		}
		lines = append(lines, place+": "+p.Reason)
	}
	return "refuse manifest: " + strings.Join(lines, "; ")
}
