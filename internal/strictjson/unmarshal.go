package strictjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxErrors bounds how many problems Unmarshal lists.
const maxErrors = 20

// ErrType is the error for a Go type that Unmarshal does not decode into: a
// mistake of the caller, never of the document.
var ErrType = errors.New("decode strict JSON: unsupported Go type")

// Unmarshal checks raw and decodes it into what v points to. It takes the
// member names from the json tags, byte for byte, and refuses
//
//   - a member that the struct does not have, or has in another case (which
//     encoding/json would match);
//   - null, except into a pointer, an any or a json.RawMessage;
//   - a value of another type, a fraction or exponent where an integer
//     stands, a number out of the type's range.
//
// It decodes structs, slices, maps with string keys, pointers, strings,
// booleans, integers, floats, json.Number, json.RawMessage, any, []byte
// (base64), and types with an UnmarshalJSON or UnmarshalText of their own. A
// json.RawMessage gets a copy of the exact bytes; numbers in an any become
// json.Number, so no digit is lost. Members that are absent leave v as it was.
// Embedded structs, arrays, and the string option of tags are not supported.
//
// The error is an *Error where Check refuses raw, and Errors where the shape is
// wrong; then v is unchanged. It wraps ErrType where v is at fault.
func Unmarshal(raw []byte, v any) error {
	target := reflect.ValueOf(v)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("%w: %T is no pointer to a value", ErrType, v)
	}
	if err := Check(raw); err != nil {
		return err
	}
	decoded := reflect.New(target.Type().Elem()).Elem()
	decoded.Set(target.Elem())
	start := skipSpace(raw, 0)
	end, _ := valueEnd(raw, start)
	d := decoder{}
	d.value(place{at: start}, raw[start:end:end], decoded)
	if d.unsupported != nil {
		return d.unsupported
	}
	if len(d.errors) > 0 {
		return d.errors
	}
	target.Elem().Set(decoded)
	return nil
}

// place is where a value stands: the names that lead to it and its offset.
type place struct {
	up    *place
	name  []byte // of a member
	index int    // of an element
	at    int
}

func (p place) pointer() string {
	var segments []string
	for ; p.up != nil; p = *p.up {
		segment := string(p.name)
		if p.name == nil {
			segment = strconv.Itoa(p.index)
		}
		segments = append([]string{segment}, segments...)
	}
	return pointer(segments)
}

type decoder struct {
	errors      Errors
	unsupported error
}

func (d *decoder) refuse(p place, reason string) {
	if len(d.errors) < maxErrors {
		d.errors = append(d.errors, &Error{Pointer: p.pointer(), Reason: reason, Offset: p.at})
	}
}

func (d *decoder) mistake(t reflect.Type, what string) {
	if d.unsupported == nil {
		d.unsupported = fmt.Errorf("%w: %s%s", ErrType, t, what)
	}
}

var (
	rawType    = reflect.TypeFor[json.RawMessage]()
	numberType = reflect.TypeFor[json.Number]()
)

// value decodes the checked token into v, which is settable.
func (d *decoder) value(p place, token []byte, v reflect.Value) {
	if v.Type() == rawType {
		v.SetBytes(bytes.Clone(token))
		return
	}
	null := token[0] == 'n'
	switch {
	case v.Kind() == reflect.Pointer && null:
		v.SetZero()
	case v.Kind() == reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		d.value(p, token, fresh.Elem())
		v.Set(fresh)
	case v.Kind() == reflect.Interface:
		d.any(token, v)
	case null:
		d.refuse(p, "null is not allowed here; leave the member out instead")
	default:
		d.concrete(p, token, v)
	}
}

func (d *decoder) concrete(p place, token []byte, v reflect.Value) {
	switch v.Addr().Interface().(type) {
	case json.Unmarshaler, encoding.TextUnmarshaler:
		d.leaf(p, token, v, true, "this value does not have the form that is expected here")
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(p, token, v)
	case reflect.Map:
		d.mapping(p, token, v)
	case reflect.Slice:
		d.slice(p, token, v)
	default:
		d.scalar(p, token, v)
	}
}

func (d *decoder) scalar(p place, token []byte, v reflect.Value) {
	number := token[0] == '-' || isDigit(token[0])
	switch v.Kind() {
	case reflect.String:
		if v.Type() == numberType {
			d.leaf(p, token, v, number, "a number is expected here")
			return
		}
		if isPlain(token) {
			v.SetString(string(token[1 : len(token)-1]))
			return
		}
		d.leaf(p, token, v, token[0] == '"', "a string is expected here")
	case reflect.Bool:
		if token[0] != 't' && token[0] != 'f' {
			d.refuse(p, "true or false is expected here")
			return
		}
		v.SetBool(token[0] == 't')
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.leaf(p, token, v, number, "a whole number, without fraction or exponent and in range, is expected here")
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.leaf(p, token, v, number, "a whole number of at least 0, without fraction or exponent and in range, is expected here")
	case reflect.Float32, reflect.Float64:
		d.leaf(p, token, v, number, "a number is expected here")
	default:
		d.mistake(v.Type(), "")
	}
}

// leaf leaves one value to encoding/json, if it is of the right sort.
func (d *decoder) leaf(p place, token []byte, v reflect.Value, sort bool, reason string) {
	if !sort || json.Unmarshal(token, v.Addr().Interface()) != nil {
		d.refuse(p, reason)
	}
}

func (d *decoder) any(token []byte, v reflect.Value) {
	if v.NumMethod() > 0 {
		d.mistake(v.Type(), "")
		return
	}
	var decoded any
	plain := json.NewDecoder(bytes.NewReader(token))
	plain.UseNumber()
	// Decode cannot fail: the token passed Check.
	if plain.Decode(&decoded) == nil && decoded != nil {
		v.Set(reflect.ValueOf(decoded))
		return
	}
	v.SetZero()
}

func (d *decoder) structure(p place, token []byte, v reflect.Value) {
	l := layoutOf(v.Type())
	if l.mistake != "" {
		d.mistake(v.Type(), l.mistake)
		return
	}
	err := eachMember(token, func(m member) bool {
		below := place{up: &p, name: m.name, at: p.at + m.valueAt}
		field, known := l.fields[string(m.name)]
		if !known {
			below.at = p.at + m.nameAt
			d.refuse(below, l.unknown(string(m.name)))
			return true
		}
		d.value(below, m.value, v.Field(field))
		return true
	})
	if err != nil {
		d.refuse(p, "an object is expected here")
	}
}

// layout is what a struct type makes of an object.
type layout struct {
	fields  map[string]int // by the names of members
	mistake string         // why it can make nothing; "" if it can
}

// layouts remembers the layout of each type, which does not change.
var layouts sync.Map // reflect.Type to *layout

func layoutOf(t reflect.Type) *layout {
	if known, ok := layouts.Load(t); ok {
		l, _ := known.(*layout) // nothing else is put there
		return l
	}
	l := newLayout(t)
	layouts.Store(t, l)
	return l
}

func newLayout(t reflect.Type) *layout {
	l := &layout{fields: make(map[string]int, t.NumField())}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" && options == "":
			continue
		case f.Anonymous:
			return &layout{mistake: ": embedded " + f.Name}
		case !f.IsExported():
			continue
		case slices.Contains(strings.Split(options, ","), "string"):
			return &layout{mistake: ": string option on " + f.Name}
		case name == "":
			name = f.Name
		}
		if _, taken := l.fields[name]; taken {
			return &layout{mistake: ": two fields named " + name}
		}
		l.fields[name] = i
	}
	return l
}

// unknown names the member that was probably meant.
func (l *layout) unknown(name string) string {
	for known := range l.fields {
		if strings.EqualFold(known, name) {
			return "unknown member; names are case-sensitive: write " + strconv.Quote(known)
		}
	}
	return "unknown member; remove it"
}

func (d *decoder) mapping(p place, token []byte, v reflect.Value) {
	t := v.Type()
	if t.Key().Kind() != reflect.String || reflect.PointerTo(t.Key()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		d.mistake(t, "")
		return
	}
	filled := reflect.MakeMap(t)
	err := eachMember(token, func(m member) bool {
		value := reflect.New(t.Elem()).Elem()
		d.value(place{up: &p, name: m.name, at: p.at + m.valueAt}, m.value, value)
		filled.SetMapIndex(reflect.ValueOf(string(m.name)).Convert(t.Key()), value)
		return true
	})
	if err != nil {
		d.refuse(p, "an object is expected here")
	}
	v.Set(filled)
}

func (d *decoder) slice(p place, token []byte, v reflect.Value) {
	t := v.Type()
	if t.Elem().Kind() == reflect.Uint8 {
		d.leaf(p, token, v, token[0] == '"', "a string in base64 is expected here")
		return
	}
	filled := reflect.MakeSlice(t, 0, 0)
	err := eachElement(token, func(value []byte, at int) bool {
		element := reflect.New(t.Elem()).Elem()
		d.value(place{up: &p, index: filled.Len(), at: p.at + at}, value, element)
		filled = reflect.Append(filled, element)
		return true
	})
	if err != nil {
		d.refuse(p, "an array is expected here")
	}
	v.Set(filled)
}
