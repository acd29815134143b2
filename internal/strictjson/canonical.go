package strictjson

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// Canonical returns the RFC 8785 form of raw, or the *Error of Check.
func Canonical(raw []byte) ([]byte, error) { return AppendCanonical(nil, raw) }

// AppendCanonical is Canonical onto the end of dst. It allocates nothing but
// room in dst, unless a member name has escapes, or an object with more than 32
// members does not stand in canonical order.
func AppendCanonical(dst, raw []byte) ([]byte, error) {
	c := borrow(raw)
	defer c.release()
	c.write, c.out = true, dst
	if err := c.document(); err != nil {
		return nil, err
	}
	return c.out, nil
}

// AppendCanonicalWithout is AppendCanonical with the object members left out
// that the JSON Pointers in ignore name. A pointer that meets an array, or
// nothing, leaves the document as it is. All of raw is checked, the members left
// out included. The error is an *Error about raw, or wraps ErrPointer.
func AppendCanonicalWithout(dst, raw []byte, ignore []string) ([]byte, error) {
	if len(ignore) == 0 {
		return AppendCanonical(dst, raw)
	}
	cut, err := cutsOf(ignore)
	if err != nil {
		return nil, err
	}
	if err := Check(raw); err != nil {
		return nil, err
	}
	rest, err := cut.from(make([]byte, 0, len(raw)), raw)
	if err != nil {
		return nil, err
	}
	return AppendCanonical(dst, rest)
}

// order puts the members of the innermost object, whose canonical forms stand at
// the end of out, into canonical order.
func (c *checker) order(f *frame) {
	own := c.members[f.base:]
	slices.SortFunc(own, func(a, b placed) int { return compareNames(a.name, b.name) })
	sorted := c.spare[:0]
	for i, m := range own {
		if i > 0 {
			sorted = append(sorted, ',')
		}
		sorted = append(sorted, c.out[m.from:m.to]...)
	}
	copy(c.out[f.start:], sorted)
	c.spare = sorted
}

// compareNames compares as RFC 8785 section 3.2.3 asks: by UTF-16 code units.
// That is the order of UTF-8 bytes, except that a character beyond U+FFFF, whose
// first unit is a surrogate, stands before U+E000 to U+FFFF.
func compareNames(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		// First bytes of such characters; elsewhere in a character no byte is
		// that high, and two that differ there began alike.
		const beyond, private = 0xf0, 0xee
		if x >= beyond && y >= private && y < beyond {
			return -1
		}
		if y >= beyond && x >= private && x < beyond {
			return 1
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
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
		below, named := c[string(m.name)]
		if named && len(below) == 0 {
			return true
		}
		if len(dst) > empty {
			dst = append(dst, ',')
		}
		dst = append(append(dst, m.token...), ':')
		dst, failed = below.from(dst, m.value)
		return failed == nil
	})
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), failed
}
