package strictjson

import (
	"bytes"
	"strconv"
	"sync"
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
	c := borrow(raw)
	defer c.release()
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
	// ordered says that the members so far stand in canonical order. Then none
	// occurs twice, and none has to be moved.
	ordered bool
	count   int
	name    []byte // of the current member, unescaped
	base    int    // where this object's members begin in checker.members
	start   int    // where the canonical form of the first member begins
	taken   map[string]struct{}
}

// placed is a member of an open object.
type placed struct {
	name     []byte // unescaped
	from, to int    // its canonical form, name included
}

// checker goes through a document once. It checks it and, where out is wanted,
// writes its canonical form as it goes.
type checker struct {
	raw    []byte
	pos    int
	frames []frame
	// members holds those of the open objects, innermost last.
	members []placed

	// How much of both was in use, to forget it.
	usedFrames, usedMembers int

	write bool
	out   []byte
	spare []byte // room for putting members in order
}

// checkers keeps the room that a check needs, so that it allocates nothing.
var checkers = sync.Pool{New: func() any {
	return &checker{frames: make([]frame, 0, 8), members: make([]placed, 0, smallObject)}
}}

func borrow(raw []byte) *checker {
	c, _ := checkers.Get().(*checker) // nothing else is put there
	c.raw = raw
	return c
}

// Bounds of what one checker keeps for the next document.
const (
	keptMembers = 256
	keptBytes   = 64 << 10
)

// release forgets the document and gives the room back.
func (c *checker) release() {
	if cap(c.members) > keptMembers {
		c.members = nil
	}
	if cap(c.spare) > keptBytes {
		c.spare = nil
	}
	clear(c.frames[:min(max(c.usedFrames, len(c.frames)), cap(c.frames))])
	clear(c.members[:min(max(c.usedMembers, len(c.members)), cap(c.members))])
	*c = checker{frames: c.frames[:0], members: c.members[:0], spare: c.spare[:0]}
	checkers.Put(c)
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
		token, escaped, err := c.text()
		if c.write && err == nil {
			c.out = appendText(c.out, token, escaped)
		}
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
	if c.write {
		c.out = append(c.out, c.raw[c.pos])
	}
	c.pos++
	c.frames = append(c.frames, frame{object: object, ordered: true, base: len(c.members), start: len(c.out)})
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
		if c.write && f.object {
			c.members[len(c.members)-1].to = len(c.out)
		}
		c.space()
		switch b := c.peek(); {
		case b == ',':
			c.pos++
			if c.write {
				c.out = append(c.out, ',')
			}
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
	c.members = append(c.members, placed{name: f.name, from: len(c.out)})
	if c.write {
		c.out = append(appendText(c.out, token, escaped), ':')
	}
	if c.space(); c.peek() != ':' {
		return c.unexpected("a colon after the member name")
	}
	c.pos++
	c.space()
	return nil
}

// claim says whether the current name of the innermost object, which is not
// among its members yet, is the first of its kind.
func (c *checker) claim(f *frame) bool {
	own := c.members[f.base:]
	if f.ordered {
		if len(own) == 0 || compareNames(own[len(own)-1].name, f.name) < 0 {
			return true
		}
		f.ordered = false
	}
	if f.taken == nil && len(own) < smallObject {
		for i := range own {
			if bytes.Equal(own[i].name, f.name) {
				return false
			}
		}
		return true
	}
	if f.taken == nil {
		f.taken = make(map[string]struct{}, 2*len(own))
		for i := range own {
			f.taken[string(own[i].name)] = struct{}{}
		}
	}
	_, taken := f.taken[string(f.name)]
	f.taken[string(f.name)] = struct{}{}
	return !taken
}

func (c *checker) close() {
	f := c.top()
	if c.write {
		if !f.ordered {
			c.order(f)
		}
		c.out = append(c.out, f.closing())
	}
	c.pos++
	c.usedFrames, c.usedMembers = max(c.usedFrames, len(c.frames)), max(c.usedMembers, len(c.members))
	c.members = c.members[:f.base]
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
	if c.write {
		c.out = append(c.out, word...)
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
