package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"holdfast.dev/gateway/internal/connectors"
)

// problems collects what is wrong with a manifest, so that an author sees all
// of it at once.
type problems struct {
	lines map[string]int
	list  []connectors.ManifestProblem
}

func (p *problems) add(pointer, format string, args ...any) {
	p.list = append(p.list, connectors.ManifestProblem{
		Line: p.line(pointer), Pointer: pointer, Reason: fmt.Sprintf(format, args...),
	})
}

// line finds the line of the nearest place that exists: a member that is
// missing has none of its own.
func (p *problems) line(pointer string) int {
	for {
		if line, ok := p.lines[pointer]; ok {
			return line
		}
		cut := strings.LastIndexByte(pointer, '/')
		if cut < 0 {
			return 0
		}
		pointer = pointer[:cut]
	}
}

// maxReported bounds a refusal.
const maxReported = 50

// err returns nil if nothing is wrong.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	sort.SliceStable(p.list, func(i, j int) bool { return p.list[i].Line < p.list[j].Line })
	return &connectors.ManifestError{Problems: p.list[:min(len(p.list), maxReported)]}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func child(pointer, name string) string {
	return pointer + "/" + pointerEscapes.Replace(name)
}

// quote writes a string as JSON, leaving <, > and & as they are.
func quote(s string) []byte { return appendQuoted(nil, s) }

// appendQuoted is quote onto the end of dst. Most texts are plain ASCII, which
// needs no encoder.
func appendQuoted(dst []byte, s string) []byte {
	for i := range len(s) {
		if b := s[i]; b < ' ' || b == '"' || b == '\\' || b >= utf8.RuneSelf {
			return append(dst, encoded(s)...)
		}
	}
	dst = append(append(slices.Grow(dst, len(s)+2), '"'), s...)
	return append(dst, '"')
}

func encoded(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
