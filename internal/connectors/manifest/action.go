package manifest

import (
	"time"

	"slices"

	"go.yaml.in/yaml/v3"

	"holdfast.dev/gateway/internal/connectors"
)

// action is a compiled action.
type action struct {
	spec     connectors.ActionSpec
	request  *request
	rules    []rule
	result   *tree // nil: the vendor's body
	usesBody bool  // result reads body
	lookups  []*lookup
	limits   connectors.RateLimits
}

func (b *builder) action(name string, f fileAction) *action {
	at := child("/actions", name)
	a := &action{limits: b.spec.Limits, spec: connectors.ActionSpec{
		Name: name, Description: f.Description, Effect: f.Effect,
		Input:         b.schema(&f.Input, child(at, "input")),
		Timeout:       b.duration(child(at, "timeout"), f.Timeout),
		Window:        b.duration(child(at, "window"), f.Window),
		Ignore:        f.Identity.Ignore,
		ExposeHeaders: b.exposed(f.ExposeHeaders, child(at, "expose_headers")),
		Idempotency:   b.idempotency(f.Idempotency, child(at, "idempotency")),
	}}
	b.times(&a.spec, at)
	members := b.members(&f.Input)
	b.ignored(f.Identity.Ignore, &f.Input, at+"/identity/ignore")

	requests := b.requests
	requests.idem, requests.members = a.spec.Idempotency, members
	if f.Request.Method == "GET" {
		b.add(at+"/request/method", "a write is never a GET: caches and proxies repeat those")
	}
	requests.members = func(pointer string, e *expr) {
		members(pointer, e)
		a.spec.MarkerFixed = a.spec.MarkerFixed || e.reads[varMarker] && !e.reads[varMark]
	}
	a.request = requests.compile(f.Request, at+"/request")
	requests.members = members
	for i, outcome := range f.Outcomes {
		a.spec.Outcomes = append(a.spec.Outcomes, connectors.Outcome(outcome.Is))
		a.rules = append(a.rules, b.rule(outcome, pointerAt(at+"/outcomes", i), members))
	}
	a.result = b.result(&f.Result, at+"/result", members)
	a.usesBody = a.result.reads(varBody)
	b.checks(a, f.Check, at+"/check", requests)
	return a
}

// times fills in the default timeout and holds both times to their bounds.
func (b *builder) times(a *connectors.ActionSpec, at string) {
	if a.Timeout == 0 {
		a.Timeout = connectors.DefaultTimeout
	}
	if a.Timeout > connectors.MaxTimeout {
		b.add(at+"/timeout", "a timeout is at most 10m")
	}
	if a.Window == 0 {
		return
	}
	if a.Window < connectors.MinWindow || a.Window > connectors.MaxWindow {
		b.add(at+"/window", "a window is from 60s to 720h")
	}
	if a.Window < 2*a.Timeout {
		b.add(at+"/window", "a window must be at least twice the timeout, %s", a.Timeout)
	}
}

func (b *builder) exposed(names []string, pointer string) []string {
	var list []string
	for i, name := range names {
		if slices.Contains(secretHeaders, canonical(name)) {
			b.add(pointerAt(pointer, i), "this header carries credentials and is never shown")
		}
		list = append(list, canonical(name))
	}
	return list
}

func (b *builder) idempotency(f *fileIdempotency, pointer string) *connectors.Idempotency {
	if f == nil {
		return nil
	}
	i := &connectors.Idempotency{
		In: f.In, Name: f.Name, Format: connectors.KeyFormat(f.Format), MaxLen: f.MaxLen,
		Documented: f.Strength == "documented",
	}
	if f.Retention != "unknown" {
		i.Retention = b.duration(child(pointer, "retention"), f.Retention)
	}
	if err := i.Fits(); err != nil {
		b.add(child(pointer, "max_len"), "%v", err)
	}
	return i
}

// result compiles a projection.
func (b *builder) result(n *yaml.Node, pointer string, members func(string, *expr)) *tree {
	if absent(n) {
		return nil
	}
	return planter{problems: b.problems, env: b.envs.answer, check: members}.tree(n, pointer)
}

// members returns a check that an expression selects only members that the
// input and the config can have, so that a misspelt one is found at load.
func (b *builder) members(input *yaml.Node) func(string, *expr) {
	return func(pointer string, e *expr) {
		for _, path := range e.params {
			if !mayHave(input, path) {
				b.add(pointer, "the input schema has no member %q", path)
			}
		}
		for _, path := range e.config {
			if !mayHave(&b.file.Config, path) {
				b.add(pointer, "the config schema has no member %q", path)
			}
		}
	}
}

// ignored checks identity.ignore: a pointer to nothing would leave out nothing
// and let two attempts at one write be two identities.
func (b *builder) ignored(pointers []string, input *yaml.Node, at string) {
	for i, p := range pointers {
		if !mayHave(input, splitPointer(p)) {
			b.add(pointerAt(at, i), "the input schema has no such member")
		}
	}
}

// mayHave says whether a JSON Schema lets an object have a member at path. Only
// a plain, closed object says no; what is composed of other schemas may have
// anything.
func mayHave(schema *yaml.Node, path []string) bool {
	if len(path) == 0 {
		return true
	}
	if absent(schema) {
		return false // no config at all: only {} is accepted
	}
	closed, properties := false, (*yaml.Node)(nil)
	for i := 0; schema.Kind == yaml.MappingNode && i+1 < len(schema.Content); i += 2 {
		value := schema.Content[i+1]
		switch schema.Content[i].Value {
		case "additionalProperties":
			closed = value.Kind == yaml.ScalarNode && value.Value == "false"
		case "properties":
			properties = value
		case "patternProperties", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if":
			return true
		}
	}
	for i := 0; properties != nil && properties.Kind == yaml.MappingNode && i+1 < len(properties.Content); i += 2 {
		if properties.Content[i].Value == path[0] {
			return mayHave(properties.Content[i+1], path[1:])
		}
	}
	return !closed
}

// minSettle is the least settle of a lookup whose absence proves something: the
// vendor's own time to finish a call that was cut is longer.
const minSettle = time.Second
