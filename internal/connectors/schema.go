package connectors

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"holdfast.dev/gateway/internal/strictjson"
)

// Schema is a compiled JSON Schema (draft 2020-12) of an object. It is
// immutable and safe for concurrent use. A nil Schema accepts only {}.
type Schema struct {
	raw      []byte
	compiled *jsonschema.Schema
	shape    *shape
}

// errNoLoader keeps a $ref from reaching a file or the network: a schema is
// data of its author and may only refer to itself.
var errNoLoader = errors.New("a schema may only refer to itself")

type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errNoLoader }

// schemaURL names the schema inside the compiler. It is never fetched. It has a
// host, or a relative $ref would resolve to the schema itself.
const schemaURL = "schema://input/"

// CompileSchema compiles a JSON Schema given as JSON.
func CompileSchema(raw []byte) (*Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.UseLoader(noLoader{})
	if err := compiler.AddResource(schemaURL, doc); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	compiled, err := compiler.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	sh := &shape{compiled: compiled}
	if !dynamic(doc) {
		sh = shapeOf(compiled)
	}
	return &Schema{raw: bytes.Clone(raw), compiled: compiled, shape: sh}, nil
}

// dynamic says whether a part of a schema may mean something else by the way that led
// to it, so that it cannot be taken for itself. An anchor is enough: the library's own
// schemas, which any may refer to, look for one.
func dynamic(doc any) bool {
	switch doc := doc.(type) {
	case map[string]any:
		for name, value := range doc {
			switch name {
			case "$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor":
				return true
			}
			if dynamic(value) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(doc, dynamic)
	}
	return false
}

// JSON returns the schema as JSON. Callers must not change it.
func (s *Schema) JSON() []byte {
	if s == nil {
		return []byte(`{"type":"object","additionalProperties":false}`)
	}
	return s.raw
}

// maxProblems bounds how many problems one refusal lists.
const maxProblems = 20

// Validate checks a JSON object. The error is an *InputError.
func (s *Schema) Validate(raw []byte) error {
	// Not only the caller's duty: the validator expands exponents, and of a
	// member given twice it would look at one and the vendor at the other.
	if err := strictjson.Check(raw); err != nil {
		var at *strictjson.Error
		if errors.As(err, &at) {
			return Invalid(at.Pointer, at.Reason)
		}
		return Invalid("", "this is not JSON")
	}
	raw = bytes.Trim(raw, " \t\r\n")
	if raw[0] != '{' {
		return Invalid("", "this must be an object")
	}
	if s == nil {
		return emptyOnly(raw)
	}
	if s.shape.fits(raw) {
		return nil
	}
	doc, err := tree(raw)
	if err != nil {
		return Invalid("", "this is not JSON")
	}
	if err = s.compiled.Validate(doc); err == nil {
		return nil
	}
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return Invalid("", "this does not fit the schema")
	}
	return &InputError{Problems: problems(invalid)}
}

func emptyOnly(object []byte) error {
	if members, err := strictjson.Members(object); err != nil || len(members) > 0 {
		return Invalid("", "this takes no members; send {}")
	}
	return nil
}

// problems turns the tree of a failed validation into a flat, sorted list.
func problems(e *jsonschema.ValidationError) []Problem {
	var list []Problem
	collect(e, &list)
	sort.SliceStable(list, func(i, j int) bool { return list[i].Pointer < list[j].Pointer })
	if len(list) > maxProblems {
		list = list[:maxProblems]
	}
	return list
}

func collect(e *jsonschema.ValidationError, list *[]Problem) {
	switch e.ErrorKind.(type) {
	// Of a choice, every branch that failed would be listed: noise that tells
	// nobody which one was meant.
	case *kind.OneOf, *kind.AnyOf, *kind.Not, *kind.Contains, *kind.MinContains, *kind.MaxContains:
	// A name has no place of its own; its own keyword does not say which it was.
	case *kind.PropertyNames:
	default:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				collect(cause, list)
			}
			return
		}
	}
	at := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			*list = append(*list, Problem{Pointer: pointer(at, name), Reason: "this member is missing"})
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			*list = append(*list, Problem{Pointer: pointer(at, name), Reason: "there is no such member here; remove it"})
		}
	case *kind.PropertyNames:
		// The validator (v6.0.3) does not copy the place, so it may have been
		// overwritten by the next one: it names the member, not where it is.
		*list = append(*list, Problem{Reason: "the member name " + strconv.Quote(clip(k.Property, maxName)) + " is not allowed"})
	default:
		*list = append(*list, Problem{Pointer: pointer(at), Reason: reason(e.ErrorKind)})
	}
}

// reason words one failed keyword from what the schema says, never from what
// was sent: a body may hold what must not be echoed into a log.
func reason(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "this must be of type " + strings.Join(k.Want, " or ")
	case *kind.Enum:
		return "this must be one of " + oneOf(k.Want)
	case *kind.Const:
		return "this must be " + oneOf([]any{k.Want})
	case *kind.Format:
		return "this must be a valid " + k.Want
	case *kind.Pattern:
		return "this must match the pattern " + strconv.Quote(k.Want)
	case *kind.MinLength:
		return "this must have at least " + strconv.Itoa(k.Want) + " characters"
	case *kind.MaxLength:
		return "this must have at most " + strconv.Itoa(k.Want) + " characters"
	case *kind.MinItems:
		return "this must have at least " + strconv.Itoa(k.Want) + " elements"
	case *kind.MaxItems:
		return "this must have at most " + strconv.Itoa(k.Want) + " elements"
	case *kind.MinProperties:
		return "this must have at least " + strconv.Itoa(k.Want) + " members"
	case *kind.MaxProperties:
		return "this must have at most " + strconv.Itoa(k.Want) + " members"
	case *kind.Minimum:
		return "this must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "this must be at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "this must be more than " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "this must be less than " + k.Want.RatString()
	case *kind.MultipleOf:
		return "this must be a multiple of " + k.Want.RatString()
	case *kind.UniqueItems:
		return "two elements are equal; each may stand once"
	case *kind.AdditionalItems:
		return "there are more elements than allowed"
	case *kind.OneOf, *kind.AnyOf:
		return "this fits none, or more than one, of the allowed forms"
	case *kind.FalseSchema, *kind.Not:
		return "this is not allowed here"
	case *kind.DependentRequired:
		return "another member is required beside " + strconv.Quote(k.Prop)
	default:
		return "this does not fit the schema"
	}
}

// oneOf lists the values a schema allows.
func oneOf(want []any) string {
	const show = 20
	words := make([]string, 0, min(len(want), show))
	for _, w := range want {
		if len(words) == show {
			words = append(words, "…")
			break
		}
		switch w := w.(type) {
		case map[string]any, []any:
			words = append(words, "a composite value")
		case nil:
			words = append(words, "null")
		case string:
			words = append(words, strconv.Quote(w))
		default:
			words = append(words, fmt.Sprint(w))
		}
	}
	return strings.Join(words, ", ")
}

// maxName bounds a name in a reason.
const maxName = 64

// maxPointer bounds a pointer in bytes: it holds names the sender chose.
const maxPointer = 256

var escapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer writes a JSON Pointer (RFC 6901). One that would be too long ends at
// the last container that fits.
func pointer(at []string, more ...string) string {
	var b strings.Builder
	for _, list := range [][]string{at, more} {
		for _, name := range list {
			if b.Len()+1+len(name) > maxPointer {
				return b.String()
			}
			b.WriteString("/" + escapes.Replace(name))
		}
	}
	return b.String()
}
