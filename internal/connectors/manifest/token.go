package manifest

import (
	"errors"
	"math"
	"sort"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// maxOutput bounds what one expression may write, in bytes, by the size it has
// when the last value is begun.
const maxOutput = 4 << 20

var (
	errNotJSON   = errors.New("the expression gives a value that JSON does not have")
	errDepth     = errors.New("the expression gives a value that is nested too deeply")
	errTooLarge  = errors.New("the expression gives a value that is too large")
	errNotFinite = errors.New("the expression gives a number that is not finite")
)

// appendJSON writes a value as JSON. Text that came from JSON is copied as it
// was; what was computed is written in its shortest exact form.
func appendJSON(dst []byte, v ref.Val) ([]byte, error) {
	return appendVal(dst, v, 0)
}

// rawJSON is a value as JSON, nil if it has no such form.
func rawJSON(v ref.Val) []byte {
	raw, err := appendJSON(nil, v)
	if err != nil {
		return nil
	}
	return raw
}

func appendVal(dst []byte, v ref.Val, depth int) ([]byte, error) {
	switch {
	case depth > maxJSONDepth:
		return nil, errDepth
	case len(dst) > maxOutput:
		// A short expression can repeat a large value many times over.
		return nil, errTooLarge
	}
	switch v := v.(type) {
	case *object:
		return append(dst, v.raw...), nil
	case *array:
		return append(dst, v.raw...), nil
	case types.String:
		return appendQuoted(dst, string(v)), nil
	case types.Int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case types.Uint:
		return strconv.AppendUint(dst, uint64(v), 10), nil
	case types.Double:
		return appendDouble(dst, float64(v))
	case decimal:
		return append(dst, v...), nil
	case types.Bool:
		return strconv.AppendBool(dst, bool(v)), nil
	case types.Null:
		return append(dst, "null"...), nil
	case traits.Mapper:
		return appendMap(dst, v, depth)
	case traits.Lister:
		return appendList(dst, v, depth)
	default:
		return nil, errNotJSON
	}
}

func appendDouble(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errNotFinite
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64), nil
}

func appendList(dst []byte, l traits.Lister, depth int) (_ []byte, err error) {
	dst = append(dst, '[')
	first := true
	for it := l.Iterator(); it.HasNext() == types.True; {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if dst, err = appendVal(dst, it.Next(), depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

// appendMap sorts the names: CEL's own maps have no order, and a plan must give
// the same bytes each time.
func appendMap(dst []byte, m traits.Mapper, depth int) (_ []byte, err error) {
	var names []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		name, ok := it.Next().(types.String)
		if !ok {
			return nil, errNotJSON
		}
		names = append(names, string(name))
	}
	sort.Strings(names)
	dst = append(dst, '{')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(dst, name), ':')
		v, ok := m.Find(types.String(name))
		if !ok {
			return nil, errNotJSON
		}
		if dst, err = appendVal(dst, v, depth+1); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}
