package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"holdfast.dev/gateway/internal/strictjson"
)

// maxJSONDepth bounds the nesting of JSON an expression may look into. Reading
// is lazy and goes over a container once for each level above what is asked
// for, so depth times size bounds the work.
const maxJSONDepth = 100

// soundJSON says whether raw is one JSON value an expression may look into.
func soundJSON(raw []byte) bool {
	depth, ok := strictjson.Sound(raw)
	return ok && depth <= maxJSONDepth
}

// newValue makes sound JSON into a CEL value. Containers keep their raw text
// and are read when they are looked into; a value belongs to one evaluation
// and must not be shared between goroutines.
func newValue(raw []byte) ref.Val {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return types.NewErr("empty value")
	}
	switch raw[0] {
	case '{':
		return &object{raw: raw}
	case '[':
		return &array{raw: raw}
	case '"':
		text, err := unquote(raw)
		if err != nil {
			return types.NewErr("malformed string")
		}
		return types.String(text)
	case 't', 'f':
		return types.Bool(raw[0] == 't')
	case 'n':
		return types.NullValue
	default:
		return newNumber(raw)
	}
}

var errText = errors.New("read string: it is none")

func unquote(raw []byte) (string, error) {
	text, ok := strictjson.Text(raw)
	if !ok {
		return "", errText
	}
	return string(text), nil
}

// object is a JSON object. It differs from CEL's own maps in that it keeps the
// raw text and the order of its members.
type object struct {
	raw     []byte
	ready   bool
	members []strictjson.Member // in order, each name once
	vals    []ref.Val           // of the members that were asked for
	places  map[string]int      // of many members, by name
}

var (
	_ traits.Mapper = (*object)(nil)
	_ traits.Lister = (*array)(nil)
)

// fewMembers are looked through one by one.
const fewMembers = 16

func (o *object) read() {
	if o.ready {
		return
	}
	o.ready = true
	all, err := strictjson.Members(o.raw)
	if err != nil {
		return // cannot be: the text is sound
	}
	if len(all) > fewMembers {
		o.places = make(map[string]int, len(all))
	}
	for _, m := range all {
		if i := o.place(m.Name); i >= 0 {
			o.members[i].Value = m.Value // the last counts, as in strictjson.Get
			continue
		}
		if o.places != nil {
			o.places[m.Name] = len(o.members)
		}
		o.members = append(all[:len(o.members)], m)
	}
}

// place is where a member stands, or -1.
func (o *object) place(name string) int {
	if o.places != nil {
		if i, ok := o.places[name]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(o.members, func(m strictjson.Member) bool { return m.Name == name })
}

// find returns the raw text of a member.
func (o *object) find(name string) ([]byte, bool) {
	o.read()
	i := o.place(name)
	if i < 0 {
		return nil, false
	}
	return o.members[i].Value, true
}

func (o *object) member(name string) (ref.Val, bool) {
	o.read()
	i := o.place(name)
	if i < 0 {
		return nil, false
	}
	if o.vals == nil {
		o.vals = make([]ref.Val, len(o.members))
	}
	if o.vals[i] == nil {
		o.vals[i] = newValue(o.members[i].Value)
	}
	return o.vals[i], true
}

// Find implements traits.Mapper.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	return o.member(string(name))
}

// Get implements traits.Indexer.
func (o *object) Get(key ref.Val) ref.Val {
	if v, ok := o.Find(key); ok {
		return v
	}
	return types.NewErr("no such key")
}

// Contains implements traits.Container.
func (o *object) Contains(key ref.Val) ref.Val {
	_, ok := o.Find(key)
	return types.Bool(ok)
}

// Size implements traits.Sizer.
func (o *object) Size() ref.Val {
	o.read()
	return types.Int(len(o.members))
}

// Iterator implements traits.Iterable: the names, in document order.
func (o *object) Iterator() traits.Iterator {
	o.read()
	names := make([]ref.Val, len(o.members))
	for i, m := range o.members {
		names[i] = types.String(m.Name)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, names).Iterator()
}

// Equal implements ref.Val.
func (o *object) Equal(v ref.Val) ref.Val {
	other, ok := v.(traits.Mapper)
	if !ok {
		return types.False
	}
	o.read()
	if other.Size() != types.Int(len(o.members)) {
		return types.False
	}
	for _, m := range o.members {
		theirs, ok := other.Find(types.String(m.Name))
		if !ok {
			return types.False
		}
		mine, _ := o.member(m.Name)
		if types.Equal(mine, theirs) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(reflect.Type) (any, error) { return nil, errNative }

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(t ref.Type) ref.Val { return convert(o, types.MapType, t) }

// Type implements ref.Val.
func (o *object) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (o *object) Value() any { return o }

// array is a JSON array that keeps its raw text.
type array struct {
	raw   []byte
	raws  [][]byte
	elems []ref.Val
	ready bool
}

func (a *array) read() []ref.Val {
	if a.ready {
		return a.elems
	}
	a.ready = true
	raws, err := strictjson.Elements(a.raw)
	if err != nil {
		return nil // cannot be: the text is sound
	}
	a.raws = raws
	a.elems = make([]ref.Val, len(raws))
	for i, raw := range raws {
		a.elems[i] = newValue(raw)
	}
	return a.elems
}

// at returns the raw text of one element.
func (a *array) at(index int64) ([]byte, bool) {
	a.read()
	if index < 0 || index >= int64(len(a.raws)) {
		return nil, false
	}
	return a.raws[index], true
}

func (a *array) list() traits.Lister {
	return types.NewRefValList(types.DefaultTypeAdapter, a.read())
}

// Add implements traits.Adder.
func (a *array) Add(other ref.Val) ref.Val { return a.list().Add(other) }

// Get implements traits.Indexer.
func (a *array) Get(index ref.Val) ref.Val { return a.list().Get(index) }

// Iterator implements traits.Iterable.
func (a *array) Iterator() traits.Iterator { return a.list().Iterator() }

// Size implements traits.Sizer.
func (a *array) Size() ref.Val { return types.Int(len(a.read())) }

// Contains implements traits.Container.
func (a *array) Contains(v ref.Val) ref.Val { return a.list().Contains(v) }

// Equal implements ref.Val.
func (a *array) Equal(other ref.Val) ref.Val {
	l, ok := other.(traits.Lister)
	if !ok || l.Size() != a.Size() {
		return types.False
	}
	for i, mine := range a.read() {
		if types.Equal(mine, l.Get(types.Int(i))) != types.True {
			return types.False
		}
	}
	return types.True
}

// ConvertToNative implements ref.Val.
func (a *array) ConvertToNative(reflect.Type) (any, error) { return nil, errNative }

// ConvertToType implements ref.Val.
func (a *array) ConvertToType(t ref.Type) ref.Val { return convert(a, types.ListType, t) }

// Type implements ref.Val.
func (a *array) Type() ref.Type { return types.ListType }

// Value implements ref.Val.
func (a *array) Value() any { return a }

var errNative = fmt.Errorf("convert JSON value: not supported")

func convert(v ref.Val, own *types.Type, t ref.Type) ref.Val {
	switch t {
	case own:
		return v
	case types.TypeType:
		return own
	}
	return types.NewErr("type conversion error")
}
