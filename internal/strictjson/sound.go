package strictjson

import "unicode/utf8"

// maxNesting is how deep encoding/json lets containers nest.
const maxNesting = 10_000

// Sound says whether raw is one JSON value by the grammar of RFC 8259, whitespace
// around it allowed, in valid UTF-8, and how deep its containers nest. That is less
// than Check asks for: it is for what a vendor says, not for what is sent to one.
// It accepts what json.Valid and utf8.Valid both do.
func Sound(raw []byte) (depth int, ok bool) {
	var room [32]byte
	open := room[:0] // the brackets that have to come, innermost last
	i := skipSpace(raw, 0)
	for {
		if i = soundStart(raw, i); i < 0 {
			return 0, false
		}
		if bracket := raw[i-1]; bracket == '{' || bracket == '[' {
			if open = append(open, bracket+2); len(open) > maxNesting { // as in eachItem
				return 0, false
			}
			depth = max(depth, len(open))
			if i = skipSpace(raw, i); i < len(raw) && raw[i] != bracket+2 {
				if i = soundName(raw, i, bracket == '{'); i < 0 {
					return 0, false
				}
				continue
			}
		}
		for i = skipSpace(raw, i); len(open) > 0 && i < len(raw) && raw[i] == open[len(open)-1]; i = skipSpace(raw, i+1) {
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return depth, i == len(raw)
		}
		if i == len(raw) || raw[i] != ',' {
			return 0, false
		}
		if i = soundName(raw, skipSpace(raw, i+1), open[len(open)-1] == '}'); i < 0 {
			return 0, false
		}
	}
}

// soundStart goes over a scalar or an opening bracket. What it returns is negative
// if there is neither.
func soundStart(raw []byte, i int) int {
	if i == len(raw) {
		return -1
	}
	switch raw[i] {
	case '{', '[':
		return i + 1
	case '"':
		return soundText(raw, i)
	case 't':
		return soundWord(raw, i, "true")
	case 'f':
		return soundWord(raw, i, "false")
	case 'n':
		return soundWord(raw, i, "null")
	}
	_, size := splitNumber(raw[i:])
	if size == 0 {
		return -1
	}
	return i + size
}

func soundWord(raw []byte, i int, word string) int {
	if len(raw)-i < len(word) || string(raw[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// soundName goes over a member's name, and the colon behind it, where there is to
// be one.
func soundName(raw []byte, i int, named bool) int {
	if !named {
		return i
	}
	if i == len(raw) || raw[i] != '"' {
		return -1
	}
	if i = soundText(raw, i); i < 0 {
		return -1
	}
	if i = skipSpace(raw, i); i == len(raw) || raw[i] != ':' {
		return -1
	}
	return skipSpace(raw, i+1)
}

// soundText goes over the string that begins at i.
func soundText(raw []byte, i int) int {
	for i++; ; {
		if i = plainEnd(raw, i); i == len(raw) {
			return -1
		}
		switch b := raw[i]; {
		case b == '"':
			return i + 1
		case b == '\\':
			size, reason := escape(raw[i:])
			if reason == badSurrogate {
				size, reason = 6, "" // a character to nobody, and JSON all the same
			}
			if reason != "" {
				return -1
			}
			i += size
		case b < ' ':
			return -1
		default:
			_, size := utf8.DecodeRune(raw[i:])
			if size == 1 {
				return -1
			}
			i += size
		}
	}
}
