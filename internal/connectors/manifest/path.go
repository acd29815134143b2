package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"cel.dev/cel-go/cel"

	"holdfast.dev/gateway/internal/connectors"
)

// pathPart is a literal piece of a path, or an expression in its place.
type pathPart struct {
	literal string
	expr    *expr
}

var (
	literalPath = regexp.MustCompile(`^[A-Za-z0-9/._~!$&'()*+,;=:@-]*$`)
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
)

// compilePath takes a path template apart. Between braces stands a plain
// selection from params or config, or a member of op.
func (p *problems) compilePath(env *cel.Env, template, pointer string, check func(string, *expr)) []pathPart {
	var parts []pathPart
	rest := 0
	for _, span := range placeholder.FindAllStringIndex(template, -1) {
		parts = append(parts, pathPart{literal: template[rest:span[0]]})
		rest = span[1]
		source := template[span[0]+1 : span[1]-1]
		e, err := compileExpr(env, source, wantPlain)
		if err != nil {
			p.add(pointer, "%v", err)
			continue
		}
		if !e.fixed() {
			p.add(pointer, "{%s} must be a plain selection such as {params.id}", source)
			continue
		}
		check(pointer, e)
		parts = append(parts, pathPart{expr: e})
	}
	parts = append(parts, pathPart{literal: template[rest:]})
	for _, part := range parts {
		if !literalPath.MatchString(part.literal) {
			p.add(pointer, "the path holds a character that cannot stand there as it is, or an unpaired brace")
		}
	}
	for segment := range strings.SplitSeq(placeholder.ReplaceAllString(template, "x")[1:], "/") {
		if segment == "" && template != "/" || segment == "." || segment == ".." {
			p.add(pointer, "the path has an empty segment or a dot segment")
		}
	}
	return parts
}

// fixed says whether an expression may stand in a path.
func (e *expr) fixed() bool {
	if e.plain != nil && len(e.plain.steps) > 0 {
		return e.plain.root != varBody
	}
	return e.source == varMarker || e.source == varKey || e.source == varUnix
}

var (
	errPathEmpty = errors.New("this stands in a path and cannot be empty")
	errPathValue = errors.New("this stands in a path and must be a string or a whole number")
	errPathChars = errors.New("this stands in a path as one segment; it cannot be . or .., nor hold a slash, a backslash, a control character, or their percent-encodings")
)

// renderPath fills the template in. Each value stays inside its segment,
// whatever it holds, or is refused.
func (r renderer) renderPath(parts []pathPart) (string, error) {
	var b strings.Builder
	for _, part := range parts {
		if part.expr == nil {
			b.WriteString(part.literal)
			continue
		}
		raw, ok, err := part.expr.token(r.ctx, r.vars)
		if r.ctx.Err() != nil {
			return "", fmt.Errorf("evaluate expression: %w", r.ctx.Err())
		}
		if err == nil && !ok {
			err = errNoMember
		}
		if err != nil {
			return "", part.expr.blame(err)
		}
		segment, err := pathSegment(raw)
		if err != nil {
			return "", part.expr.blame(err)
		}
		b.WriteString(segment)
	}
	path := b.String()
	// Pieces that are harmless alone could join into a dot segment.
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return "", connectors.Invalid("", "the path of the request would hold a dot segment")
		}
	}
	return path, nil
}

// wholeNumber says whether a JSON scalar is a number without fraction and exponent.
func wholeNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || digits == "0")
}

func pathSegment(raw []byte) (string, error) {
	text, err := scalarText(raw)
	switch {
	case err != nil:
		return "", errPathValue
	case text == "":
		return "", errPathEmpty
	case raw[0] != '"' && !wholeNumber(text):
		return "", errPathValue
	}
	// Servers and proxies that decode once too often exist; what such a one
	// would read must stay inside the segment too.
	decoded := text
	for range 3 {
		if !harmless(decoded) {
			return "", errPathChars
		}
		next := unescape(decoded)
		if next == decoded {
			break
		}
		decoded = next
	}
	if !harmless(decoded) {
		return "", errPathChars
	}
	return escape(text), nil
}

var escaped = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// unescape decodes what is percent-encoded and leaves what is malformed, as a
// lax server does.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	return escaped.ReplaceAllStringFunc(s, func(hex string) string {
		n, err := strconv.ParseUint(hex[1:], 16, 8)
		if err != nil {
			return hex
		}
		return string([]byte{byte(n)})
	})
}

func harmless(segment string) bool {
	if segment == "." || segment == ".." || strings.ContainsAny(segment, `/\`) {
		return false
	}
	return strings.IndexFunc(segment, unicode.IsControl) < 0
}
