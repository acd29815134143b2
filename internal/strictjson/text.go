package strictjson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Reasons for which a string is refused.
const (
	badUTF8      = "this is not valid UTF-8"
	badControl   = "a control character in a string must be written as an escape"
	badEscape    = "this is not an escape that JSON has"
	badSurrogate = "this escape is half of a surrogate pair; send the whole character"
)

// text reads the string that begins at the current place and returns its token,
// quotes included.
func (c *checker) text() (token []byte, escaped bool, err *Error) {
	start := c.pos
	for i := plainEnd(c.raw, start+1); i < len(c.raw); i = plainEnd(c.raw, i) {
		switch b := c.raw[i]; {
		case b == '"':
			c.pos = i + 1
			return c.raw[start:c.pos], escaped, nil
		case b == '\\':
			size, reason := escape(c.raw[i:])
			if reason != "" {
				c.pos = i
				return nil, false, c.fail(reason)
			}
			escaped = true
			i += size
		case b < ' ':
			c.pos = i
			return nil, false, c.fail(badControl)
		default:
			_, size := utf8.DecodeRune(c.raw[i:])
			if size == 1 {
				c.pos = i
				return nil, false, c.fail(badUTF8)
			}
			i += size
		}
	}
	c.pos = len(c.raw)
	return nil, false, c.unexpected("the closing quote of a string")
}

// plainText marks the bytes of a string that stand for themselves: ASCII but for
// control characters, the quote and the backslash.
var plainText = func() (plain [256]bool) {
	for b := byte(' '); b < utf8.RuneSelf; b++ {
		plain[b] = b != '"' && b != '\\'
	}
	return plain
}()

// plainEnd is where the bytes of plainText from i on end. It looks at eight at once.
func plainEnd(raw []byte, i int) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(raw); i += 8 {
		w := binary.LittleEndian.Uint64(raw[i:])
		// The high bit of a byte of w-n*ones&^w is set where that byte of w is less
		// than n; of a byte behind such a one it may be set, too.
		quote, slash := w^'"'*ones, w^'\\'*ones
		if s := (w | (w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & high; s != 0 {
			return i + bits.TrailingZeros64(s)/8
		}
	}
	for i < len(raw) && plainText[raw[i]] {
		i++
	}
	return i
}

// escape measures the escape at the start of raw: a pair of surrogates is one.
func escape(raw []byte) (size int, reason string) {
	if len(raw) < 2 {
		return 0, badEscape
	}
	if raw[1] != 'u' {
		if bytes.IndexByte([]byte(`"\/bfnrt`), raw[1]) < 0 {
			return 0, badEscape
		}
		return 2, ""
	}
	unit, ok := codeUnit(raw)
	switch {
	case !ok:
		return 0, badEscape
	case unit < 0xd800 || unit > 0xdfff:
		return 6, ""
	}
	low, ok := codeUnit(raw[6:])
	if unit > 0xdbff || !ok || low < 0xdc00 || low > 0xdfff {
		return 0, badSurrogate
	}
	return 12, ""
}

// codeUnit reads \uXXXX at the start of raw.
func codeUnit(raw []byte) (unit rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	for _, b := range raw[2:6] {
		switch {
		case isDigit(b):
			unit = unit<<4 | rune(b-'0')
		case 'a' <= b|0x20 && b|0x20 <= 'f':
			unit = unit<<4 | rune(b|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return unit, true
}

// appendText writes the canonical form of a sound string token: RFC 8785 section
// 3.2.2.2 escapes the quote, the backslash and control characters, and nothing
// else. Without an escape a sound token is its own canonical form.
func appendText(dst, token []byte, escaped bool) []byte {
	if !escaped {
		return append(dst, token...)
	}
	return appendReescaped(dst, token)
}

func appendReescaped(dst, token []byte) []byte {
	for i := 0; i < len(token); {
		if token[i] != '\\' {
			dst = append(dst, token[i])
			i++
			continue
		}
		r, size := unescape(token[i:])
		dst = appendEscaped(dst, r)
		i += size
	}
	return dst
}

// unescape reads the sound escape at the start of raw.
func unescape(raw []byte) (r rune, size int) {
	if raw[1] != 'u' {
		if i := strings.IndexByte("bfnrt", raw[1]); i >= 0 {
			return rune("\b\f\n\r\t"[i]), 2
		}
		return rune(raw[1]), 2
	}
	r, _ = codeUnit(raw)
	if utf16.IsSurrogate(r) {
		low, _ := codeUnit(raw[6:])
		return utf16.DecodeRune(r, low), 12
	}
	return r, 6
}

// appendEscaped writes a character inside a canonical string.
func appendEscaped(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if r < ' ' {
		const digits = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&0xf])
	}
	return utf8.AppendRune(dst, r)
}

// nameOf returns the string a sound token stands for. Without an escape it is
// the bytes between the quotes, not a copy.
func nameOf(token []byte, escaped bool) []byte {
	if !escaped {
		return token[1 : len(token)-1]
	}
	name, _ := textOf(token)
	return name
}

// textOf decodes a string token; what it returns may be a part of it. Of a token
// that Check would refuse it makes what encoding/json makes of it, or says false.
func textOf(token []byte) ([]byte, bool) {
	if isPlain(token) {
		return token[1 : len(token)-1], true
	}
	var s string
	if len(token) == 0 || token[0] != '"' || json.Unmarshal(token, &s) != nil {
		return nil, false
	}
	return []byte(s), true
}

// Text decodes a string token as encoding/json does, or says false. What it returns
// may be a part of the token, and is not to be changed.
func Text(token []byte) (text []byte, ok bool) { return textOf(token) }

// isPlain says whether a token is a string in which every byte stands for
// itself. Nearly all names are, and need no decoder.
func isPlain(token []byte) bool {
	last := len(token) - 1
	if last < 1 || token[0] != '"' || token[last] != '"' {
		return false
	}
	return plainEnd(token, 1) == last
}
