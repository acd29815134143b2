package connectors

import (
	"bytes"
	"encoding/json"
	"reflect"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"holdfast.dev/gateway/internal/strictjson"
)

// shape is a schema held against JSON as it stands, without a tree of it. The
// library has the last word: it compiled the schema, it is given as a tree whatever
// the few keywords here cannot tell, and all of a document that does not fit. So a
// shape may say no too often, never yes.
type shape struct {
	compiled *jsonschema.Schema // not nil: it alone can tell

	never bool  // the schema false
	types types // 0: any
	texts map[string]bool
	other bool // texts lists what a string may be, and nothing else may stand here

	minLength, maxLength   *int // in characters
	minItems, maxItems     *int
	minMembers, maxMembers *int

	element *shape // nil: any
	members map[string]property
	needed  int    // members that are required
	closed  bool   // no others than members
	rest    *shape // of the others; nil: any
}

type property struct {
	shape    *shape // nil: any
	required bool
	listed   bool // among properties, else only among those required
}

// types are the types a value may have.
type types uint8

const (
	typeNull types = 1 << iota
	typeBoolean
	typeNumber
	typeInteger // without fraction and exponent; others may be integers, too
	typeText
	typeArray
	typeObject
)

var typeNames = map[string]types{
	"null": typeNull, "boolean": typeBoolean, "number": typeNumber | typeInteger, "integer": typeInteger,
	"string": typeText, "array": typeArray, "object": typeObject,
}

// understood are the fields of a compiled schema that a shape takes over, or that
// say nothing about a value.
var understood = map[string]bool{
	"DraftVersion": true, "Location": true, "Bool": true, "Types": true, "Enum": true,
	"MinLength": true, "MaxLength": true, "MinItems": true, "MaxItems": true, "Items2020": true,
	"MinProperties": true, "MaxProperties": true, "Required": true, "Properties": true, "AdditionalProperties": true,
	"Title": true, "Description": true, "Default": true, "Comment": true,
	"ReadOnly": true, "WriteOnly": true, "Examples": true, "Deprecated": true,
}

// shapeOf makes the shape of a compiled schema. There is no end of a schema that
// refers to itself, but references are the library's.
func shapeOf(s *jsonschema.Schema) *shape {
	texts, ok := textsOf(s.Enum)
	if !ok || !plainly(s) {
		return &shape{compiled: s}
	}
	sh := &shape{
		never: s.Bool != nil && !*s.Bool, texts: texts, other: s.Enum != nil,
		minLength: s.MinLength, maxLength: s.MaxLength, minItems: s.MinItems, maxItems: s.MaxItems,
		minMembers: s.MinProperties, maxMembers: s.MaxProperties,
		members: make(map[string]property, len(s.Properties)),
	}
	if s.Types != nil {
		for _, name := range s.Types.ToStrings() {
			sh.types |= typeNames[name]
		}
	}
	if s.Items2020 != nil {
		sh.element = shapeOf(s.Items2020)
	}
	switch others := s.AdditionalProperties.(type) {
	case bool:
		sh.closed = !others
	case *jsonschema.Schema:
		sh.rest = shapeOf(others)
	}
	for name, of := range s.Properties {
		sh.members[name] = property{shape: shapeOf(of), listed: true}
	}
	for _, name := range s.Required {
		m := sh.members[name]
		if !m.required {
			sh.needed++
		}
		m.required = true
		sh.members[name] = m
	}
	return sh
}

// plainly says whether a schema has none but understood keywords.
func plainly(s *jsonschema.Schema) bool {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() && !understood[f.Name] && !v.Field(i).IsZero() {
			return false
		}
	}
	return true
}

// textsOf is what an enum lists, if it lists strings alone.
func textsOf(e *jsonschema.Enum) (map[string]bool, bool) {
	if e == nil {
		return nil, true
	}
	texts := make(map[string]bool, len(e.Values))
	for _, v := range e.Values {
		text, ok := v.(string)
		if !ok {
			return nil, false
		}
		texts[text] = true
	}
	return texts, true
}

// fits says whether a token that the guard has passed is certain to be valid. It
// goes as deep as the guard allows.
func (sh *shape) fits(raw []byte) bool {
	if sh == nil {
		return true
	}
	if sh.compiled != nil {
		doc, err := tree(raw)
		return err == nil && sh.compiled.Validate(doc) == nil
	}
	of := typeOf(raw)
	if sh.never || sh.types != 0 && sh.types&of == 0 || sh.other && of != typeText {
		return false
	}
	switch of {
	case typeObject:
		return sh.object(raw)
	case typeArray:
		return sh.array(raw)
	case typeText:
		return sh.text(raw)
	default:
		return true
	}
}

func typeOf(raw []byte) types {
	switch raw[0] {
	case '{':
		return typeObject
	case '[':
		return typeArray
	case '"':
		return typeText
	case 't', 'f':
		return typeBoolean
	case 'n':
		return typeNull
	}
	if bytes.ContainsAny(raw, ".eE") {
		return typeNumber
	}
	return typeInteger
}

// tree is a token as the library takes it.
func tree(raw []byte) (any, error) {
	switch typeOf(raw) {
	case typeText:
		if said, ok := strictjson.Text(raw); ok {
			return string(said), nil
		}
	case typeNumber, typeInteger:
		return json.Number(raw), nil
	default:
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(raw))
}

func (sh *shape) object(raw []byte) bool {
	count, needed, fit := 0, sh.needed, true
	err := strictjson.EachMember(raw, func(name, value []byte) bool {
		count++
		m := sh.members[string(name)]
		if m.required {
			needed--
		}
		of := m.shape
		if !m.listed {
			of, fit = sh.rest, !sh.closed
		}
		fit = fit && of.fits(value)
		return fit
	})
	return err == nil && fit && needed == 0 && within(count, sh.minMembers, sh.maxMembers)
}

func (sh *shape) array(raw []byte) bool {
	count, fit := 0, true
	err := strictjson.EachElement(raw, func(value []byte) bool {
		count++
		fit = sh.element.fits(value)
		return fit
	})
	return err == nil && fit && within(count, sh.minItems, sh.maxItems)
}

func (sh *shape) text(raw []byte) bool {
	said, ok := strictjson.Text(raw)
	if !ok || sh.other && !sh.texts[string(said)] {
		return false
	}
	if sh.minLength == nil && sh.maxLength == nil {
		return true
	}
	return within(utf8.RuneCount(said), sh.minLength, sh.maxLength)
}

func within(n int, least, most *int) bool {
	return (least == nil || n >= *least) && (most == nil || n <= *most)
}
