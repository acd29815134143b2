package strictjson

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits of what Check accepts.
const (
	// MaxDepth is how many containers may stand inside one another, the
	// outermost included.
	MaxDepth = 64
	// MaxMembers is how many members or elements one container may have.
	MaxMembers = 10_000
	// MaxNumber is the length of the longest number in bytes. Every double
	// can be written out in plain digits in fewer. The bound is needed because
	// strconv.ParseFloat, which the canonical form rests on, misreads longer
	// forms: "1", 9000 zeros and "e-9000" is 1, and it answers 0.
	MaxNumber = 400
)

// maxPointer bounds Error.Pointer in bytes: it holds member names, and those
// are the sender's.
const maxPointer = 256

// Error says why a document was refused and where. It never holds a value of
// the document; Pointer holds member names.
type Error struct {
	// Pointer is the place as an RFC 6901 JSON Pointer, "" for the whole
	// document. Where the full pointer would be longer than 256 bytes it
	// names the nearest enclosing container that fits.
	Pointer string
	// Reason is one plain sentence for the agent that sent the document.
	Reason string
	// Offset is the place in bytes from the start of the document.
	Offset int
}

// Error quotes the pointer, so that a member name cannot forge a log line.
func (e *Error) Error() string {
	return fmt.Sprintf("refuse JSON at %s (byte %d): %s", strconv.Quote(e.Pointer), e.Offset, e.Reason)
}

// Errors is what Unmarshal returns for a sound document of the wrong shape: at
// least one problem, in document order.
type Errors []*Error

// Error names the first problem and counts the rest.
func (e Errors) Error() string {
	switch len(e) {
	case 0:
		return "refuse JSON"
	case 1:
		return e[0].Error()
	default:
		return fmt.Sprintf("%s (and %d more)", e[0].Error(), len(e)-1)
	}
}

// Unwrap lets errors.As find the first *Error.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// The escapes of RFC 6901 section 3, applied in one pass, so that "~01" is "~1".
var (
	pointerEscapes   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescapes = strings.NewReplacer("~0", "~", "~1", "/")
)

// pointer writes segments as an RFC 6901 pointer of at most maxPointer bytes.
func pointer(segments []string) string {
	var b strings.Builder
	for _, s := range segments {
		if b.Len()+1+len(s) > maxPointer {
			break
		}
		escaped := pointerEscapes.Replace(s)
		if b.Len()+1+len(escaped) > maxPointer {
			break
		}
		b.WriteByte('/')
		b.WriteString(escaped)
	}
	return b.String()
}
