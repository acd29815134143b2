package strictjson

import (
	"bytes"
	"strconv"
)

// Check accepts raw if it is exactly one JSON value by the grammar of RFC 8259,
// whitespace around it allowed, and if everything in it has one meaning:
//
//   - valid UTF-8, no byte-order mark, no escape that is half a surrogate pair;
//   - no member name twice in an object, compared after unescaping;
//   - no number whose decimal value differs from the one its IEEE-754 double
//     prints back in ECMAScript form (RFC 8785 section 3.2.2.3), so that two
//     different amounts never share a canonical form;
//   - within MaxDepth, MaxMembers and MaxNumber.
//
// The error is an *Error. Time is linear in len(raw); nothing recurses.
func Check(raw []byte) error {
	// Room for an ordinary body, so that these stay the only allocations.
	c := checker{raw: raw, frames: make([]frame, 0, 8), names: make([][]byte, 0, smallObject)}
	if err := c.document(); err != nil {
		return err
	}
	return nil
}

// smallObject is the number of members up to which a new name is compared with
// each earlier one; larger objects get a map.
const smallObject = 32

// frame is one container that is open.
type frame struct {
	object bool
	// inside says that the current member or element is known, hence part of
	// the pointer; between a comma and the next name it is not.
	inside bool
	count  int
	name   []byte // of the current member, unescaped
	base   int    // where this object's names begin in checker.names
	large  map[string]struct{}
}

type checker struct {
	raw    []byte
	pos    int
	frames []frame
	// names holds the member names of the open objects, innermost last, as
	// long as their object is small.
	names [][]byte
}

func (c *checker) document() *Error {
	if bytes.HasPrefix(c.raw, []byte("\xef\xbb\xbf")) {
		return c.fail("remove the byte-order mark; send plain UTF-8")
	}
	c.space()
	if c.pos == len(c.raw) {
		return c.fail("the text is empty; send one JSON value")
	}
	for more := true; more; {
		opened, err := c.value()
		if err != nil {
			return err
		}
		if opened {
			more, err = c.first()
		} else {
			more, err = c.next()
		}
		if err != nil {
			return err
		}
	}
	if c.space(); c.pos < len(c.raw) {
		return c.fail("there is more text after the JSON value; send exactly one")
	}
	return nil
}

// value reads a scalar, or the opening bracket of a container.
func (c *checker) value() (opened bool, err *Error) {
	switch b := c.peek(); b {
	case '{', '[':
		return true, c.open(b == '{')
	case '"':
		_, _, err = c.text()
		return false, err
	case 't':
		return false, c.literal("true")
	case 'f':
		return false, c.literal("false")
	case 'n':
		return false, c.literal("null")
	default:
		if b == '-' || isDigit(b) {
			return false, c.number()
		}
		return false, c.unexpected("a JSON value")
	}
}

func (c *checker) open(object bool) *Error {
	if len(c.frames) == MaxDepth {
		return c.fail("this is nested deeper than " + strconv.Itoa(MaxDepth) + " levels")
	}
	c.pos++
	c.frames = append(c.frames, frame{object: object, base: len(c.names)})
	return nil
}

// first goes from an opening bracket to the first value inside, or, if there is
// none, to the next value after the container. more is false at the end.
func (c *checker) first() (more bool, err *Error) {
	c.space()
	if c.peek() == c.top().closing() {
		c.close()
		return c.next()
	}
	return true, c.enter()
}

// next goes from the end of a value to the start of the one that follows it.
// more is false at the end of the document.
func (c *checker) next() (more bool, err *Error) {
	for len(c.frames) > 0 {
		f := c.top()
		f.inside = false
		c.space()
		switch b := c.peek(); {
		case b == ',':
			c.pos++
			c.space()
			return true, c.enter()
		case b == f.closing():
			c.close()
		case f.object:
			return false, c.unexpected("a comma or the end of the object")
		default:
			return false, c.unexpected("a comma or the end of the array")
		}
	}
	return false, nil
}

// enter begins a member, name and colon included, or an element.
func (c *checker) enter() *Error {
	f := c.top()
	if f.count == MaxMembers {
		return c.fail("there are more than " + strconv.Itoa(MaxMembers) + " members or elements in one container")
	}
	f.count++
	if !f.object {
		f.inside = true
		return nil
	}
	if c.peek() != '"' {
		return c.unexpected("a member name in double quotes")
	}
	start := c.pos
	token, escaped, err := c.text()
	if err != nil {
		return err
	}
	f.name, f.inside = nameOf(token, escaped), true
	if !c.claim(f) {
		c.pos = start
		return c.fail("this member name occurs more than once in its object")
	}
	if c.space(); c.peek() != ':' {
		return c.unexpected("a colon after the member name")
	}
	c.pos++
	c.space()
	return nil
}

// claim records the current name of the innermost object; false if it is taken.
func (c *checker) claim(f *frame) bool {
	if f.large != nil {
		_, taken := f.large[string(f.name)]
		f.large[string(f.name)] = struct{}{}
		return !taken
	}
	own := c.names[f.base:]
	for _, n := range own {
		if bytes.Equal(n, f.name) {
			return false
		}
	}
	if len(own) < smallObject {
		c.names = append(c.names, f.name)
		return true
	}
	f.large = make(map[string]struct{}, 2*smallObject)
	for _, n := range own {
		f.large[string(n)] = struct{}{}
	}
	f.large[string(f.name)] = struct{}{}
	c.names = c.names[:f.base]
	return true
}

func (c *checker) close() {
	c.pos++
	c.names = c.names[:c.top().base]
	c.frames = c.frames[:len(c.frames)-1]
}

func (c *checker) top() *frame { return &c.frames[len(c.frames)-1] }

func (f *frame) closing() byte {
	if f.object {
		return '}'
	}
	return ']'
}

func (c *checker) literal(word string) *Error {
	if !bytes.HasPrefix(c.raw[c.pos:], []byte(word)) {
		return c.unexpected("a JSON value")
	}
	c.pos += len(word)
	return nil
}

// peek returns the byte at the current place, 0 at the end. A NUL in the text
// is no token either, so the two need not be told apart.
func (c *checker) peek() byte {
	if c.pos < len(c.raw) {
		return c.raw[c.pos]
	}
	return 0
}

func (c *checker) space() { c.pos = skipSpace(c.raw, c.pos) }

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r') {
		i++
	}
	return i
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func (c *checker) unexpected(wanted string) *Error {
	if c.pos >= len(c.raw) {
		return c.fail("the JSON ends too early: " + wanted + " was expected")
	}
	return c.fail("this is not JSON: " + wanted + " was expected here")
}

// fail makes the error for the current place.
func (c *checker) fail(reason string) *Error {
	segments := make([]string, 0, len(c.frames))
	for i := range c.frames {
		f := &c.frames[i]
		switch {
		case !f.inside:
		case f.object:
			segments = append(segments, string(f.name))
		default:
			segments = append(segments, strconv.Itoa(f.count-1))
		}
	}
	return &Error{Pointer: pointer(segments), Reason: reason, Offset: c.pos}
}
