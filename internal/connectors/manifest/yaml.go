package manifest

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"holdfast.dev/gateway/internal/connectors"
)

// maxDepth bounds the nesting of a manifest.
const maxDepth = 50

// document is a manifest that passed the YAML guard: one tree in which every
// scalar has one meaning.
type document struct {
	root  *yaml.Node
	json  []byte         // the same tree as JSON, members in order
	lines map[string]int // JSON Pointer -> line of its key
}

// parseYAML reads exactly one document of plain mappings, sequences and
// scalars. What YAML has beyond JSON (anchors, tags, merge keys, dates, its
// many spellings of null and of numbers) is refused: each lets a reader and the
// gateway see two different manifests.
func parseYAML(raw []byte) (*document, *connectors.ManifestError) {
	if len(raw) > connectors.MaxManifest {
		return nil, refuse(0, "the file is larger than 256 KiB")
	}
	if !utf8.Valid(raw) || bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")) {
		return nil, refuse(0, "the file must be UTF-8 without a byte-order mark")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	var stream yaml.Node
	if err := decoder.Decode(&stream); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, refuse(0, "the file is empty")
		}
		return nil, refuseYAML(err)
	}
	var more yaml.Node
	switch err := decoder.Decode(&more); {
	case err == nil:
		return nil, refuse(more.Line, "a file holds one connector; put this second document into its own file")
	case !errors.Is(err, io.EOF):
		return nil, refuseYAML(err)
	}
	if stream.Kind != yaml.DocumentNode || len(stream.Content) != 1 {
		return nil, refuse(1, "the file is empty")
	}
	g := guard{lines: make(map[string]int)}
	root := stream.Content[0]
	if bad := g.node(root, "", 0); bad != nil {
		return nil, bad
	}
	return &document{root: root, json: g.out.Bytes(), lines: g.lines}, nil
}

func refuse(line int, reason string) *connectors.ManifestError {
	return refuseAt(line, "", reason)
}

func refuseAt(line int, pointer, reason string) *connectors.ManifestError {
	return &connectors.ManifestError{Problems: []connectors.ManifestProblem{{Line: line, Pointer: pointer, Reason: reason}}}
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// parserError tells the errors whose line the YAML library counts from zero.
var parserError = regexp.MustCompile(`^did not find expected ([<',]|node|key|'-')`)

func refuseYAML(err error) *connectors.ManifestError {
	text, line := err.Error(), 0
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		line, _ = strconv.Atoi(found[1])
		text = text[len(found[0]):]
		if parserError.MatchString(text) {
			line++
		}
	}
	return refuse(line, "this is not YAML: "+text+" (quote an expression that holds one of ? : { } [ ] , #)")
}

// guard walks a document once, refuses what it must, and writes it as JSON.
type guard struct {
	out   bytes.Buffer
	lines map[string]int
}

func (g *guard) node(n *yaml.Node, pointer string, depth int) *connectors.ManifestError {
	switch {
	case n.Anchor != "" || n.Kind == yaml.AliasNode:
		return refuseAt(n.Line, pointer, "anchors and aliases are not allowed; write it out")
	case n.Style&yaml.TaggedStyle != 0:
		return refuseAt(n.Line, pointer, "tags are not allowed; quote the value to make it a string")
	case depth > maxDepth:
		return refuseAt(n.Line, pointer, "this is nested too deeply")
	}
	if _, seen := g.lines[pointer]; !seen {
		g.lines[pointer] = n.Line
	}
	switch n.Kind {
	case yaml.MappingNode:
		return g.mapping(n, pointer, depth)
	case yaml.SequenceNode:
		return g.sequence(n, pointer, depth)
	default:
		return g.scalar(n, pointer)
	}
}

func (g *guard) mapping(n *yaml.Node, pointer string, depth int) *connectors.ManifestError {
	seen := make(map[string]bool, len(n.Content)/2)
	g.out.WriteByte('{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Anchor != "" || key.Kind == yaml.AliasNode || key.Style&yaml.TaggedStyle != 0:
			return refuseAt(key.Line, pointer, "anchors, aliases and tags are not allowed")
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			return refuseAt(key.Line, pointer, "a member name must be a string; quote it")
		case seen[key.Value]:
			return refuseAt(key.Line, child(pointer, key.Value), "this member stands here twice")
		}
		seen[key.Value] = true
		at := child(pointer, key.Value)
		g.lines[at] = key.Line
		if i > 0 {
			g.out.WriteByte(',')
		}
		g.out.Write(quote(key.Value))
		g.out.WriteByte(':')
		if bad := g.node(value, at, depth+1); bad != nil {
			return bad
		}
	}
	g.out.WriteByte('}')
	return nil
}

func (g *guard) sequence(n *yaml.Node, pointer string, depth int) *connectors.ManifestError {
	g.out.WriteByte('[')
	for i, item := range n.Content {
		if i > 0 {
			g.out.WriteByte(',')
		}
		if bad := g.node(item, child(pointer, strconv.Itoa(i)), depth+1); bad != nil {
			return bad
		}
	}
	g.out.WriteByte(']')
	return nil
}

func (g *guard) scalar(n *yaml.Node, pointer string) *connectors.ManifestError {
	token, reason := scalarToken(n)
	if reason != "" {
		return refuseAt(n.Line, pointer, reason)
	}
	g.out.Write(token)
	return nil
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// scalarToken returns a scalar as the JSON token it stands for, numbers with
// the digits they are written with.
func scalarToken(n *yaml.Node) (token []byte, reason string) {
	if n.Kind != yaml.ScalarNode {
		return nil, "this kind of value is not allowed"
	}
	switch n.ShortTag() {
	case "!!str":
		return quote(n.Value), ""
	case "!!int", "!!float":
		if !jsonNumber.MatchString(n.Value) {
			return nil, "write a number as JSON has it, or quote it to make it a string"
		}
		return []byte(n.Value), ""
	case "!!bool":
		if n.Value != "true" && n.Value != "false" {
			return nil, "write true or false, or quote it to make it a string"
		}
		return []byte(n.Value), ""
	case "!!null":
		if n.Value != "null" {
			return nil, "a value is missing here; write null if that is meant"
		}
		return []byte("null"), ""
	default:
		return nil, "quote this value to make it a string"
	}
}
