package strictjson

import (
	"bytes"
	"errors"
	"strings"

	"github.com/gowebpki/jcs"
)

// errCanonical hides the cause: it would quote the document.
var errCanonical = errors.New("canonicalise JSON: the canonical form refused what the check accepted")

// Canonical returns the RFC 8785 form of raw, or the *Error of Check.
func Canonical(raw []byte) ([]byte, error) {
	if err := Check(raw); err != nil {
		return nil, err
	}
	return transform(raw)
}

func transform(checked []byte) ([]byte, error) {
	canonical, err := jcs.Transform(checked)
	if err != nil {
		return nil, errCanonical
	}
	return canonical, nil
}

// CanonicalWithout is Canonical with the object members left out that the JSON
// Pointers in ignore name. A pointer that meets an array, or nothing, leaves
// the document as it is. All of raw is checked, the members left out included.
// The error is an *Error about raw, or wraps ErrPointer.
func CanonicalWithout(raw []byte, ignore []string) ([]byte, error) {
	cut, err := cutsOf(ignore)
	if err != nil {
		return nil, err
	}
	if err := Check(raw); err != nil {
		return nil, err
	}
	if len(cut) == 0 {
		return transform(raw)
	}
	rest, err := cut.from(make([]byte, 0, len(raw)), raw)
	if err != nil {
		return nil, err
	}
	return transform(rest)
}

// ErrPointer is the error for a text that is no JSON Pointer to a member.
var ErrPointer = errors.New(`not a JSON Pointer to an object member: it must begin with "/", and "~" stands only in "~0" and "~1"`)

// ParsePointer splits an RFC 6901 JSON Pointer into its unescaped segments. The
// empty pointer names the whole document, not a member of it, and is refused.
func ParsePointer(p string) ([]string, error) {
	if !strings.HasPrefix(p, "/") {
		return nil, ErrPointer
	}
	for i := range p {
		if p[i] == '~' && (i+1 == len(p) || p[i+1] != '0' && p[i+1] != '1') {
			return nil, ErrPointer
		}
	}
	segments := strings.Split(p[1:], "/")
	for i, s := range segments {
		segments[i] = pointerUnescapes.Replace(s)
	}
	return segments, nil
}

// cuts is a tree of member names; an empty one below a name means that the
// member goes.
type cuts map[string]cuts

func cutsOf(pointers []string) (cuts, error) {
	root := cuts{}
	for _, p := range pointers {
		segments, err := ParsePointer(p)
		if err != nil {
			return nil, err
		}
		root.add(segments)
	}
	return root, nil
}

func (c cuts) add(segments []string) {
	for i, s := range segments {
		below, known := c[s]
		switch {
		case known && len(below) == 0:
			return // the whole member goes already
		case i == len(segments)-1:
			c[s] = cuts{}
			return
		case !known:
			below = cuts{}
			c[s] = below
		}
		c = below
	}
}

// from appends the checked value raw without the members that are cut. It
// recurses as deep as the pointers and the document both go.
func (c cuts) from(dst, raw []byte) ([]byte, error) {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(c) == 0 || raw[0] != '{' {
		return append(dst, raw...), nil
	}
	dst = append(dst, '{')
	empty := len(dst)
	var failed error
	err := eachMember(raw, func(m member) bool {
		below, named := c[m.Name]
		if named && len(below) == 0 {
			return true
		}
		if len(dst) > empty {
			dst = append(dst, ',')
		}
		dst = append(append(dst, m.token...), ':')
		dst, failed = below.from(dst, m.Value)
		return failed == nil
	})
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), failed
}
