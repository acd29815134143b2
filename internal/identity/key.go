package identity

import "strings"

// maxKey is the longest key of an agent in bytes.
const maxKey = 255

// KeyError says why an agent's own key was refused, never what it was.
type KeyError struct {
	// Reason is one plain sentence for the agent.
	Reason string
}

func (e *KeyError) Error() string { return "refuse idempotency key: " + e.Reason }

// CheckKey accepts a key of 1 to 255 printable ASCII characters (0x20 to 0x7e)
// that neither begins nor ends with a blank. The error is a *KeyError.
func CheckKey(key string) error {
	switch {
	case key == "":
		return &KeyError{"the key is empty; leave it out to have one derived"}
	case len(key) > maxKey:
		return &KeyError{"the key is longer than 255 characters"}
	case key[0] == ' ' || key[len(key)-1] == ' ':
		return &KeyError{"the key begins or ends with a blank"}
	}
	for i := range len(key) {
		if !printable(key[i]) {
			return &KeyError{"the key holds a character that is not printable ASCII"}
		}
	}
	return nil
}

func printable(b byte) bool { return 0x20 <= b && b <= 0x7e }

// ParseKeyHeader reads the values of the Idempotency-Key header, one for each
// time it was sent. Without any the key is "". The error is a *KeyError.
//
// A value whose first character is a double quote is always read as a string of
// RFC 9651 section 3.3.3 (draft-ietf-httpapi-idempotency-key-header sends it
// so), and refused unless it is exactly one: "a\"b" is the key a"b. Parameters
// (`"a";x=1`) and lists (`"a", "b"`, as a proxy joins a repeated header) are
// refused. Every other value is bare, the key itself, byte for byte: a;x=1 and
// a"b are keys, and so is a, b; but not a, a: that is a header which was sent
// twice and joined by somebody on the way (RFC 9110 section 5.3). A key that begins
// with a double quote, or looks so joined, is therefore sent quoted and escaped, or
// as the member idempotency_key.
//
// Blanks and tabs around the value are no part of it (RFC 9110 section 5.5).
func ParseKeyHeader(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", &KeyError{"the Idempotency-Key header was sent more than once"}
	}
	key := strings.Trim(values[0], " \t")
	if strings.HasPrefix(key, `"`) {
		var err error
		if key, err = unquote(key); err != nil {
			return "", err
		}
	} else if repeated(key) {
		return "", &KeyError{"the Idempotency-Key header was sent more than once"}
	}
	if err := CheckKey(key); err != nil {
		return "", err
	}
	return key, nil
}

// repeated says whether a value is one and the same thing several times, joined
// by commas.
func repeated(value string) bool {
	first, rest, found := strings.Cut(value, ",")
	for ; found; first, rest, found = strings.Cut(rest, ",") {
		next, _, _ := strings.Cut(rest, ",")
		if strings.Trim(first, " \t") != strings.Trim(next, " \t") {
			return false
		}
	}
	return strings.ContainsRune(value, ',') && strings.Trim(first, " \t") != ""
}

// unquote parses a string as RFC 9651 section 4.2.5 does, and refuses whatever
// follows it.
func unquote(quoted string) (string, error) {
	var key strings.Builder
	for i := 1; i < len(quoted); i++ {
		switch b := quoted[i]; {
		case b == '"' && i == len(quoted)-1:
			return key.String(), nil
		case b == '"':
			return "", &KeyError{"something follows the quoted key; send the key alone, without parameters"}
		case b == '\\':
			i++
			if i == len(quoted) || quoted[i] != '"' && quoted[i] != '\\' {
				return "", &KeyError{`in a quoted key a backslash stands only before " or \`}
			}
			key.WriteByte(quoted[i])
		default:
			key.WriteByte(b) // CheckKey sees to the range
		}
	}
	return "", &KeyError{"the quoted key has no closing quote"}
}
