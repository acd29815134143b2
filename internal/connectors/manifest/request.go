package manifest

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"cel.dev/cel-go/cel"

	"holdfast.dev/gateway/internal/connectors"
)

// request is a compiled request template.
type request struct {
	method   string
	path     []pathPart
	query    *tree // an object, or nil
	headers  []headerTree
	encoding string
	body     *tree
}

type headerTree struct {
	name  string // canonical
	value *tree
}

// Encodings of a request body.
const (
	encodeAsJSON = "json"
	encodeAsForm = "form"
	encodeAsNone = "none"
)

// requestCompiler compiles the requests of one manifest.
type requestCompiler struct {
	*problems
	env     *cel.Env
	static  []headerTree // the manifest's own headers
	authIn  connectors.Auth
	idem    *connectors.Idempotency // of the action at hand
	lookup  bool                    // compiling a lookup: no key is planted in it
	members func(pointer string, e *expr)
}

func (c requestCompiler) compile(f fileRequest, pointer string) *request {
	r := &request{method: f.Method, encoding: f.Encoding}
	if r.encoding == "" {
		r.encoding = encodeAsNone
		if !absent(&f.Body) {
			r.encoding = encodeAsJSON
		}
	}
	r.path = c.compilePath(c.env, f.Path, child(pointer, "path"), c.noKey("path", c.members))
	c.compileQuery(r, &f.Query, child(pointer, "query"))
	c.compileHeaders(r, &f.Headers, child(pointer, "headers"))
	c.compileBody(r, &f.Body, child(pointer, "body"))
	c.plantKey(r, pointer)
	return r
}

// noKey adds to a check that an action without an idempotency rule has no key
// to plant.
func (c requestCompiler) noKey(part string, check func(string, *expr)) func(string, *expr) {
	return func(pointer string, e *expr) {
		check(pointer, e)
		if e.reads[varKey] && c.idem == nil {
			c.add(pointer, "op.vendor_key needs an idempotency rule in the action; the %s of this request has none to use", part)
		}
	}
}

func (c requestCompiler) planter(part string, form bool) planter {
	return planter{problems: c.problems, env: c.env, form: form, check: c.noKey(part, c.members)}
}

func (c requestCompiler) compileQuery(r *request, n *yaml.Node, pointer string) {
	if absent(n) || len(n.Content) == 0 {
		return
	}
	r.query = c.planter("query", true).tree(n, pointer)
	if !r.query.isObject {
		c.add(pointer, "a query lists its parameters by name")
		return
	}
	if c.authIn.Type == connectors.APIKey && c.authIn.In == "query" && r.query.has(c.authIn.Name) {
		c.add(pointer, "the parameter %s carries the credential and cannot be set", c.authIn.Name)
	}
}

// has says whether an object tree has a member of that name.
func (t *tree) has(name string) bool {
	return t != nil && slices.ContainsFunc(t.members, func(m member) bool { return m.name == name })
}

func (c requestCompiler) compileHeaders(r *request, n *yaml.Node, pointer string) {
	r.headers = slices.Clone(c.static)
	seen := make(map[string]bool)
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		name, at := n.Content[i].Value, child(pointer, n.Content[i].Value)
		value := c.planter("header", false).tree(n.Content[i+1], at)
		if reason := c.headerReason(name); reason != "" {
			c.add(at, "%s", reason)
			continue
		}
		switch {
		case value.isObject || value.items != nil:
			c.add(at, "%v", errHeaderValue)
		case value.literal != nil:
			if _, err := headerText(value.literal); err != nil {
				c.add(at, "%v", err)
			}
		}
		if seen[canonical(name)] {
			c.add(at, "this header stands here twice")
		}
		seen[canonical(name)] = true
		r.setHeader(canonical(name), value)
	}
	c.contentType(r, pointer)
}

// setHeader replaces a header the manifest sets for all its requests.
func (r *request) setHeader(name string, value *tree) {
	r.headers = slices.DeleteFunc(r.headers, func(h headerTree) bool { return h.name == name })
	r.headers = append(r.headers, headerTree{name: name, value: value})
}

func (r *request) header(name string) *tree {
	for _, h := range r.headers {
		if h.name == name {
			return h.value
		}
	}
	return nil
}

func (c requestCompiler) headerReason(name string) string {
	if reason := reserved(name); reason != "" {
		return reason
	}
	if c.authIn.Type == connectors.APIKey && c.authIn.In == "header" && canonical(name) == canonical(c.authIn.Name) {
		return "this header carries the credential and cannot be set"
	}
	return ""
}

// contentType lets a manifest name a JSON media type of its vendor, and
// nothing that contradicts the encoding.
func (c requestCompiler) contentType(r *request, pointer string) {
	const name = "Content-Type"
	own := r.header(name)
	if own == nil {
		return
	}
	if r.encoding == encodeAsNone && slices.ContainsFunc(c.static, func(h headerTree) bool { return h.value == own }) {
		r.headers = slices.DeleteFunc(r.headers, func(h headerTree) bool { return h.name == name })
		return
	}
	text := ""
	if own.literal != nil {
		text, _ = headerText(own.literal)
	}
	if r.encoding != encodeAsJSON || !jsonType(text) {
		c.add(pointer, "Content-Type follows from the encoding; only a JSON media type beside encoding json may be written out")
	}
}

func (c requestCompiler) compileBody(r *request, n *yaml.Node, pointer string) {
	if absent(n) {
		if r.encoding != encodeAsNone {
			c.add(pointer, "encoding %s needs a body", r.encoding)
		}
		return
	}
	if r.encoding == encodeAsNone {
		c.add(pointer, "encoding none has no body")
		return
	}
	p := c.planter("body", r.encoding == encodeAsForm)
	check := p.check
	p.check = func(at string, e *expr) {
		check(at, e)
		if e.reads[varConfig] {
			c.add(at, "config may stand in a path, a header or a query, not in a body")
		}
	}
	r.body = p.tree(n, pointer)
	if r.encoding == encodeAsForm && !r.body.isObject && r.body.expr == nil {
		c.add(pointer, "%v", errFormShape)
	}
}

// plantKey puts the vendor key where the idempotency rule says, unless the
// template does so itself, perhaps deeper down.
func (c requestCompiler) plantKey(r *request, pointer string) {
	if c.idem == nil || c.lookup {
		return
	}
	key, err := compileExpr(c.env, varKey, wantPlain)
	if err != nil {
		c.add(pointer, "%v", err)
		return
	}
	planted := &tree{expr: key}
	taken := "the idempotency rule puts its key here, but %s is set to something else"
	switch c.idem.In {
	case "header":
		c.plantHeader(r, planted, child(pointer, "headers"), taken)
	case "query":
		if r.query == nil {
			r.query = &tree{isObject: true}
		}
		c.plantMember(r.query, planted, child(pointer, "query"), taken)
	case "body":
		if r.body == nil {
			c.add(pointer, "the idempotency rule puts its key in a body, and there is none")
			return
		}
		c.plantMember(r.body, planted, child(pointer, "body"), taken)
	}
}

func (c requestCompiler) plantHeader(r *request, key *tree, pointer, taken string) {
	name := canonical(c.idem.Name)
	if own := r.header(name); own != nil {
		if !own.reads(varKey) {
			c.add(child(pointer, c.idem.Name), taken, c.idem.Name)
		}
		return
	}
	if reason := c.headerReason(name); reason != "" {
		c.add(pointer, "idempotency: %s", reason)
		return
	}
	r.setHeader(name, key)
}

func (c requestCompiler) plantMember(t, key *tree, pointer, taken string) {
	switch {
	case t.reads(varKey):
	case !t.isObject:
		c.add(pointer, "the idempotency rule puts its key here, so this must be an object written out")
	case t.has(c.idem.Name):
		c.add(child(pointer, c.idem.Name), taken, c.idem.Name)
	default:
		t.members = append(t.members, member{name: c.idem.Name, value: key})
	}
}

// compileStatic compiles the headers a manifest sets on all its requests.
func (c requestCompiler) compileStatic(headers map[string]string) []headerTree {
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	var list []headerTree
	for _, name := range names {
		at := child("/headers", name)
		if reason := c.headerReason(name); reason != "" {
			c.add(at, "%s", reason)
			continue
		}
		if err := headerSafe(headers[name]); err != nil {
			c.add(at, "%v", err)
		}
		if slices.ContainsFunc(list, func(h headerTree) bool { return strings.EqualFold(h.name, name) }) {
			c.add(at, "this header stands here twice")
		}
		list = append(list, headerTree{name: canonical(name), value: &tree{literal: quote(headers[name])}})
	}
	return list
}
