package strictjson

import (
	"bytes"
	"strconv"
)

const (
	badNumber     = "this is not a number that JSON has"
	inexactNumber = "this number cannot be represented exactly; send it as a string"
)

// numeral is a number token in its parts.
type numeral struct {
	whole, fraction, exponent []byte // digits only
	negativeExponent          bool
}

// number reads the number at the current place.
func (c *checker) number() *Error {
	n, size := splitNumber(c.raw[c.pos:])
	if size == 0 {
		return c.fail(badNumber)
	}
	if size > MaxNumber {
		return c.fail("this number is longer than " + strconv.Itoa(MaxNumber) + " characters; send it as a string")
	}
	token := c.raw[c.pos : c.pos+size]
	if n.plain() {
		if c.write {
			c.out = append(c.out, token...)
		}
		c.pos += size
		return nil
	}
	var room [maxDigits]byte
	significand, power, ok := n.normal(room[:0])
	if !ok || !exact(significand, power) {
		return c.fail(inexactNumber)
	}
	if c.write {
		c.out = appendNumber(c.out, token[0] == '-', significand, power)
	}
	c.pos += size
	return nil
}

// plain says, without looking at the number's value, that it is exact and its
// own canonical form: up to 15 digits, no exponent, no zero at the end of the
// fraction, and not so small that the canonical form has an exponent. It is
// often wrong about others.
func (n numeral) plain() bool {
	if len(n.exponent) > 0 || len(n.whole)+len(n.fraction) > 15 {
		return false
	}
	if len(n.fraction) == 0 {
		return n.whole[0] != '0' // -0 is written 0
	}
	return n.fraction[len(n.fraction)-1] != '0' && (n.whole[0] != '0' || n.fraction[0] != '0')
}

// splitNumber reads a number by the grammar of RFC 8259 section 6; size is 0 if
// there is none.
func splitNumber(raw []byte) (n numeral, size int) {
	i := 0
	if i < len(raw) && raw[i] == '-' {
		i++
	}
	n.whole, i = digits(raw, i)
	if len(n.whole) == 0 || n.whole[0] == '0' && len(n.whole) > 1 {
		return numeral{}, 0
	}
	if i < len(raw) && raw[i] == '.' {
		if n.fraction, i = digits(raw, i+1); len(n.fraction) == 0 {
			return numeral{}, 0
		}
	}
	if i < len(raw) && raw[i]|0x20 == 'e' {
		i++
		if i < len(raw) && (raw[i] == '+' || raw[i] == '-') {
			n.negativeExponent = raw[i] == '-'
			i++
		}
		if n.exponent, i = digits(raw, i); len(n.exponent) == 0 {
			return numeral{}, 0
		}
	}
	return n, i
}

func digits(raw []byte, from int) (run []byte, end int) {
	end = from
	for end < len(raw) && isDigit(raw[end]) {
		end++
	}
	return raw[from:end], end
}

// exact says whether the decimal value d.ddd x 10^power is exactly the one its
// double prints back. The comparison is made on digits. The sign plays no part:
// doubles are symmetrical, and -0 has the value of 0.
func exact(significand []byte, power int) bool {
	switch {
	case len(significand) == 0:
		return true
	// A double keeps any 15 digits across its normal range (DBL_DIG), so both
	// the value and no shorter neighbour come back.
	case len(significand) <= 15 && -307 <= power && power <= 307:
		return true
	}
	var text, back [40]byte
	written := scientific(text[:0], significand, power)
	double, err := strconv.ParseFloat(string(written), 64)
	if err != nil {
		return false
	}
	return bytes.Equal(written, strconv.AppendFloat(back[:0], double, 'e', -1, 64))
}

// appendNumber writes d.ddd x 10^power as ECMAScript does (Number::toString with
// radix 10, https://tc39.es/ecma262/#sec-numeric-types-number-tostring), which
// RFC 8785 section 3.2.2.3 asks for. The digits of an exact number are the ones
// its double prints, so no double is needed.
func appendNumber(dst []byte, negative bool, significand []byte, power int) []byte {
	if len(significand) == 0 {
		return append(dst, '0') // also for -0
	}
	if negative {
		dst = append(dst, '-')
	}
	switch point := power + 1; {
	case power > 20 || power < -6:
		dst = append(dst, significand[0])
		if len(significand) > 1 {
			dst = append(append(dst, '.'), significand[1:]...)
		}
		dst = append(dst, 'e')
		if power > 0 {
			dst = append(dst, '+')
		}
		return strconv.AppendInt(dst, int64(power), 10)
	case point <= 0:
		dst = append(dst, "0."...)
		return append(appendZeros(dst, -point), significand...)
	case point < len(significand):
		dst = append(append(dst, significand[:point]...), '.')
		return append(dst, significand[point:]...)
	default:
		return appendZeros(append(dst, significand...), point-len(significand))
	}
}

func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// maxDigits is the most significant digits a printed double has.
const maxDigits = 17

// normal appends the digits of d.ddd x 10^power without a leading or trailing
// zero (none at all for zero). It is not ok if there are too many for a double
// to print, or if the power is far outside its range.
func (n numeral) normal(dst []byte) (significand []byte, power int, ok bool) {
	fraction := bytes.TrimRight(n.fraction, "0")
	whole := n.whole
	power = len(whole) - 1
	if whole[0] == '0' {
		whole = nil
		all := len(fraction)
		fraction = bytes.TrimLeft(fraction, "0")
		power = len(fraction) - all - 1
	}
	if len(fraction) == 0 {
		whole = bytes.TrimRight(whole, "0")
	}
	if len(whole)+len(fraction) == 0 {
		return nil, 0, true
	}
	if len(whole)+len(fraction) > maxDigits {
		return nil, 0, false
	}
	shift, ok := n.shift()
	if power += shift; !ok || power < -324 || power > 308 {
		return nil, 0, false
	}
	return append(append(dst, whole...), fraction...), power, true
}

// shift is the value of the written exponent. It is not ok from 10,000 up: no
// number of MaxNumber characters has enough digits to bring that back.
func (n numeral) shift() (int, bool) {
	exponent := bytes.TrimLeft(n.exponent, "0")
	if len(exponent) > 4 {
		return 0, false
	}
	shift := 0
	for _, b := range exponent {
		shift = shift*10 + int(b-'0')
	}
	if n.negativeExponent {
		return -shift, true
	}
	return shift, true
}

// scientific writes d.ddde±xx as strconv.AppendFloat does with format 'e'.
func scientific(dst, significand []byte, power int) []byte {
	dst = append(dst, significand[0])
	if len(significand) > 1 {
		dst = append(append(dst, '.'), significand[1:]...)
	}
	dst = append(dst, 'e')
	if power < 0 {
		dst, power = append(dst, '-'), -power
	} else {
		dst = append(dst, '+')
	}
	if power < 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(power), 10)
}
