package manifest

import (
	"errors"
	"strconv"
	"strings"

	"holdfast.dev/gateway/internal/strictjson"
)

var errFormShape = errors.New("the body of a form must be an object")

func formName(name string) bool { return name != "" && !strings.ContainsAny(name, "[]") }

// encodeForm writes a JSON object as application/x-www-form-urlencoded:
// members of members as a[b], elements as a[], elements that are containers
// themselves as a[0][b]; numbers with the digits they have, booleans as words.
// A query is written the same way.
func encodeForm(raw []byte) ([]byte, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errFormShape
	}
	members, err := strictjson.Members(raw)
	if err != nil {
		return nil, errFormShape
	}
	var f form
	for _, m := range members {
		if err := f.value(escape(m.Name), m.Value); err != nil {
			return nil, err
		}
	}
	return f.out, nil
}

type form struct{ out []byte }

func (f *form) value(key string, raw []byte) error {
	switch raw[0] {
	case '{':
		members, err := strictjson.Members(raw)
		if err != nil || len(members) == 0 {
			return errFormEmpty
		}
		for _, m := range members {
			if !formName(m.Name) {
				return errFormName
			}
			if err := f.value(key+"%5B"+escape(m.Name)+"%5D", m.Value); err != nil {
				return err
			}
		}
		return nil
	case '[':
		return f.list(key, raw)
	case 'n':
		return errFormNull
	default:
		text, err := scalarText(raw)
		if err != nil {
			return err
		}
		f.pair(key, text)
		return nil
	}
}

func (f *form) list(key string, raw []byte) error {
	elements, err := strictjson.Elements(raw)
	if err != nil || len(elements) == 0 {
		return errFormEmpty
	}
	nested := false
	for _, e := range elements {
		nested = nested || e[0] == '{' || e[0] == '['
	}
	for i, e := range elements {
		index := ""
		if nested {
			index = strconv.Itoa(i)
		}
		if err := f.value(key+"%5B"+index+"%5D", e); err != nil {
			return err
		}
	}
	return nil
}

func (f *form) pair(key, value string) {
	if len(f.out) > 0 {
		f.out = append(f.out, '&')
	}
	f.out = append(append(append(f.out, key...), '='), escape(value)...)
}

var errScalar = errors.New("only a string, a number or a boolean can stand here")

// scalarText is a scalar as text: a string's characters, a number's digits.
func scalarText(raw []byte) (string, error) {
	switch raw[0] {
	case '"':
		return unquote(raw)
	case '{', '[', 'n':
		return "", errScalar
	default:
		return string(raw), nil
	}
}

// escape percent-encodes everything but the unreserved characters of RFC 3986
// section 2.3, so the result means the same in a path segment, a query and a
// form, and can end none of them.
func escape(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && unreserved(s[i])
	}
	if plain {
		return s
	}
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if unreserved(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}
