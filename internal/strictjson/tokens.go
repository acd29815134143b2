package strictjson

import "strconv"

// Member is one member of an object.
type Member struct {
	Name  string // unescaped
	Value []byte // the raw token, a part of the document it came from
}

// Members returns the members of the object raw in document order. It reads
// text that Check accepted; of other text it may accept too much or too
// little, but never panics, and never a duplicate is dropped. The error is an
// *Error.
func Members(raw []byte) ([]Member, error) {
	var list []Member
	err := eachMember(raw, func(m member) bool {
		if list == nil {
			list = make([]Member, 0, 4)
		}
		list = append(list, Member{Name: string(m.name), Value: m.value})
		return true
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// EachMember visits the members of the object raw in document order, until visit
// says false. It makes no list of them: a name may be a part of raw, and is not to
// be changed. As with Members, raw should have passed Check; the error is an *Error.
func EachMember(raw []byte, visit func(name, value []byte) (more bool)) error {
	if err := eachMember(raw, func(m member) bool { return visit(m.name, m.value) }); err != nil {
		return err
	}
	return nil
}

// EachElement is EachMember for the elements of an array.
func EachElement(raw []byte, visit func(value []byte) (more bool)) error {
	if err := eachElement(raw, func(value []byte, _ int) bool { return visit(value) }); err != nil {
		return err
	}
	return nil
}

// Elements returns the raw tokens of the array raw, parts of raw, in order. As
// with Members, raw should have passed Check.
func Elements(raw []byte) ([][]byte, error) {
	var list [][]byte
	err := eachElement(raw, func(value []byte, _ int) bool {
		list = append(list, value)
		return true
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Get returns the raw token, a part of raw, at a path of member names; where an
// array stands a segment is a decimal index. An empty path is the whole value
// without the whitespace around it. Where a name occurs twice, which Check
// refuses but a vendor may send, the last counts, as it does in encoding/json:
// a rule that was decided on the decoded form and a copied token must be of
// the same member.
func Get(raw []byte, path ...string) (value []byte, ok bool) {
	start := skipSpace(raw, 0)
	end, ok := valueEnd(raw, start)
	if !ok || skipSpace(raw, end) != len(raw) {
		return nil, false
	}
	value = raw[start:end:end]
	for _, segment := range path {
		if value, ok = child(value, segment); !ok {
			return nil, false
		}
	}
	return value, true
}

func child(raw []byte, segment string) (found []byte, ok bool) {
	if raw[0] == '{' {
		err := eachMember(raw, func(m member) bool {
			if string(m.name) == segment {
				found, ok = m.value, true
			}
			return true
		})
		return found, ok && err == nil
	}
	index, err := strconv.Atoi(segment)
	if err != nil || strconv.Itoa(index) != segment {
		return nil, false
	}
	place := 0
	_ = eachElement(raw, func(value []byte, _ int) bool {
		if place == index {
			found, ok = value, true
		}
		place++
		return !ok
	})
	return found, ok
}

// member is one member of an object, how its name was written, and where it stands.
type member struct {
	name, value     []byte // the name unescaped
	token           []byte // of the name
	nameAt, valueAt int    // offsets in the object
}

// eachMember visits the members of an object until visit says false.
func eachMember(raw []byte, visit func(member) bool) *Error {
	return eachItem(raw, '{', "this is not a JSON object", func(i int) (end int, more, ok bool) {
		nameEnd, ok := stringEnd(raw, i)
		if !ok {
			return i, false, false
		}
		name, ok := textOf(raw[i:nameEnd])
		colon := skipSpace(raw, nameEnd)
		if !ok || colon == len(raw) || raw[colon] != ':' {
			return i, false, false
		}
		start := skipSpace(raw, colon+1)
		end, ok = valueEnd(raw, start)
		if !ok {
			return start, false, false
		}
		m := member{name: name, value: raw[start:end:end], token: raw[i:nameEnd], nameAt: i, valueAt: start}
		return end, visit(m), true
	})
}

// eachElement visits the elements of an array, with their offset, until visit
// says false.
func eachElement(raw []byte, visit func(value []byte, at int) bool) *Error {
	return eachItem(raw, '[', "this is not a JSON array", func(i int) (end int, more, ok bool) {
		end, ok = valueEnd(raw, i)
		if !ok {
			return i, false, false
		}
		return end, visit(raw[i:end:end], i), true
	})
}

const malformed = "this is not JSON"

// eachItem goes through a container that opens with bracket; item reads the
// member or element at an offset and says where it ends.
func eachItem(raw []byte, bracket byte, other string, item func(at int) (end int, more, ok bool)) *Error {
	i := skipSpace(raw, 0)
	if i == len(raw) || raw[i] != bracket {
		return &Error{Reason: other, Offset: i}
	}
	closing := bracket + 2 // ASCII has ] two after [ and } two after {
	if i = skipSpace(raw, i+1); i < len(raw) && raw[i] == closing {
		return atEnd(raw, i+1)
	}
	for {
		end, more, ok := item(i)
		if !ok {
			return &Error{Reason: malformed, Offset: end}
		}
		if !more {
			return nil
		}
		i = skipSpace(raw, end)
		switch {
		case i < len(raw) && raw[i] == ',':
			i = skipSpace(raw, i+1)
		case i < len(raw) && raw[i] == closing:
			return atEnd(raw, i+1)
		default:
			return &Error{Reason: malformed, Offset: i}
		}
	}
}

func atEnd(raw []byte, i int) *Error {
	if i = skipSpace(raw, i); i < len(raw) {
		return &Error{Reason: malformed, Offset: i}
	}
	return nil
}

// valueEnd finds the end of the value that begins at i, by its brackets and
// quotes alone.
func valueEnd(raw []byte, i int) (end int, ok bool) {
	if i >= len(raw) {
		return i, false
	}
	switch raw[i] {
	case '"':
		return stringEnd(raw, i)
	case '{', '[':
		return containerEnd(raw, i)
	}
	for end = i; end < len(raw); end++ {
		switch raw[end] {
		case ',', ':', ']', '}', '[', '{', '"', ' ', '\t', '\n', '\r':
			return end, end > i
		}
	}
	return end, true
}

func containerEnd(raw []byte, i int) (end int, ok bool) {
	for depth := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			if i, ok = stringEnd(raw, i); !ok {
				return i, false
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 {
			return i, true
		}
	}
	return i, false
}

func stringEnd(raw []byte, i int) (end int, ok bool) {
	if i >= len(raw) || raw[i] != '"' {
		return i, false
	}
	for i = plainEnd(raw, i+1); i < len(raw); i = plainEnd(raw, i+1) {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1, true
		}
	}
	return len(raw), false
}
