package manifest

import (
	"bytes"
	"math"
	"math/big"
	"reflect"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"holdfast.dev/gateway/internal/strictjson"
)

// newNumber gives a number by its value, whatever its spelling: 1, 1.0 and 1e0
// are one identity (CONTRACT 3) and must compute alike. What no number of CEL's
// holds exactly becomes a decimal.
func newNumber(raw []byte) ref.Val {
	text := string(raw)
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return types.Int(i)
	}
	if u, err := strconv.ParseUint(text, 10, 64); err == nil {
		return types.Uint(u)
	}
	if len(raw) > strictjson.MaxNumber {
		return types.NewErr("a number is too long")
	}
	if strictjson.Check(raw) != nil {
		return decimal(text)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return decimal(text)
	}
	const two63 = 1 << 63
	switch {
	case f == math.Trunc(f) && -two63 <= f && f < two63:
		return types.Int(int64(f))
	case f == math.Trunc(f) && two63 <= f && f < 2*two63:
		return types.Uint(uint64(f))
	default:
		return types.Double(f)
	}
}

// decimal is a number that neither int, uint nor double holds. It can be passed
// on and compared for equality, exactly; to compute with it is an error.
type decimal string

var decimalType = types.NewOpaqueType("decimal")

// Equal implements ref.Val. No other kind of number equals a decimal, or it
// would not be one.
func (d decimal) Equal(other ref.Val) ref.Val {
	o, ok := other.(decimal)
	return types.Bool(ok && d.normal() == o.normal())
}

// normal spells the value in one way: sign, significant digits, power of ten.
// The exponent may be larger than an int, but it is short.
func (d decimal) normal() string {
	digits, sign := []byte(d), ""
	if digits[0] == '-' {
		digits, sign = digits[1:], "-"
	}
	power := new(big.Int)
	if e := bytes.IndexAny(digits, "eE"); e >= 0 {
		power.SetString(string(bytes.TrimPrefix(digits[e+1:], []byte("+"))), 10)
		digits = digits[:e]
	}
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	power.Sub(power, big.NewInt(int64(len(fraction))))
	all := bytes.TrimLeft(append(bytes.Clone(whole), fraction...), "0")
	short := bytes.TrimRight(all, "0")
	power.Add(power, big.NewInt(int64(len(all)-len(short))))
	return sign + string(short) + "e" + power.String()
}

// ConvertToNative implements ref.Val.
func (d decimal) ConvertToNative(reflect.Type) (any, error) { return nil, errNative }

// ConvertToType implements ref.Val.
func (d decimal) ConvertToType(t ref.Type) ref.Val { return convert(d, decimalType, t) }

// Type implements ref.Val.
func (d decimal) Type() ref.Type { return decimalType }

// Value implements ref.Val.
func (d decimal) Value() any { return string(d) }
