package manifest

import (
	"slices"
	"sort"
	"strings"

	"cel.dev/cel-go/cel"
	"go.yaml.in/yaml/v3"

	"holdfast.dev/gateway/internal/connectors"
)

// Advise compiles a manifest and says what is allowed in it but seldom meant,
// with lines. What Compile refuses is its error. The connector is usable
// whatever the advice.
func (c *Compiler) Advise(raw []byte) (connectors.Connector, []connectors.ManifestProblem, error) {
	b, built, err := c.compile(raw)
	if err != nil {
		return nil, nil, err
	}
	a := adviser{builder: b, built: built, problems: &problems{lines: b.lines}}
	abroad := slices.ContainsFunc(b.file.BaseURL.Allow, func(base string) bool { return strings.HasPrefix(base, "https://") })
	if b.file.Metadata.Docs == "" && abroad {
		a.problems.add("/metadata", "docs is missing: link the vendor's page that this was written from")
	}
	names := make([]string, 0, len(b.file.Actions))
	for name := range b.file.Actions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		a.action(b.file.Actions[name], built.actions[name], child("/actions", name))
	}
	a.redact()
	sort.SliceStable(a.problems.list, func(i, j int) bool { return a.problems.list[i].Line < a.problems.list[j].Line })
	return built, a.problems.list, nil
}

// adviser keeps its own list: the builder's refuses a manifest.
type adviser struct {
	builder  *builder
	built    *connector
	problems *problems
}

func (a adviser) action(f fileAction, built *action, at string) {
	if f.Description == "" {
		a.problems.add(at, "description is missing: agents choose an action by it")
	}
	a.rules(f.Outcomes, built.rules, at+"/outcomes")
	a.input(&f.Input, built, at)
	resends := slices.ContainsFunc(built.spec.Checks, func(r connectors.CheckRule) bool { return r.Kind == connectors.Resend })
	if i := built.spec.Idempotency; i != nil && i.Documented && i.Retention > 0 && !resends {
		a.problems.add(at+"/check", "the vendor replays its answer under this key, and no check uses it: add a resend within less than the retention")
	}
}

// rules looks at the statuses each rule may decide on.
func (a adviser) rules(files []fileOutcome, rules []rule, at string) {
	succeeds, tooMany := false, false
	for i, r := range rules {
		matched := a.statuses(r)
		place := pointerAt(at, i)
		if len(matched) == 0 {
			a.problems.add(place+"/when", "no status from 200 to 599 makes this true, so the rule never decides")
		}
		succeeds = succeeds || r.is == connectors.Succeeded
		tooMany = tooMany || slices.Contains(matched, 429)
		outside := slices.IndexFunc(matched, func(s int) bool { return s > 299 })
		if r.is == connectors.Succeeded && outside >= 0 && files[i].Doc == "" {
			a.problems.add(place, "this says that it was done, and may match status %d: narrow the rule, or add doc, a link to the vendor's page that says so", matched[outside])
		}
	}
	if !succeeds {
		a.problems.add(at, "no rule says succeeded, so every write would be held")
	}
	if !tooMany {
		a.problems.add(at, "no rule decides on status 429, so a rate limit would hold the write: say retryable if the vendor promises that nothing was done")
	}
}

// statuses lists those a rule may match, whatever the answer holds besides.
func (a adviser) statuses(r rule) []int {
	program, err := a.builder.envs.answer.Program(r.when.checked, append([]cel.ProgramOption(nil), partialEval...)...)
	if err != nil {
		return nil
	}
	var list []int
	for status := 200; status < 600; status++ {
		if a.builder.mayMatch(program, status) {
			list = append(list, status)
		}
	}
	return list
}

// input finds what an agent may say and the vendor never hears of: such a
// member would be part of the identity and of nothing else.
func (a adviser) input(schema *yaml.Node, built *action, at string) {
	used, whole := built.request.params()
	if whole {
		return
	}
	if !closed(schema) {
		a.problems.add(at+"/input", "the schema lets any member through, and the request leaves out those it does not name: add additionalProperties: false")
	}
	for _, name := range propertyNames(schema) {
		if !used[name] && !slices.Contains(built.spec.Ignore, child("", name)) {
			a.problems.add(child(at+"/input/properties", name), "the request does not use this member, so what an agent says here would be lost")
		}
	}
}

// params lists the members of params a request reads, or says that it reads
// them all.
func (r *request) params() (used map[string]bool, whole bool) {
	used = make(map[string]bool)
	visit := func(e *expr) {
		if e.plain != nil && e.plain.root == varParams && len(e.plain.steps) == 0 {
			whole = true
		}
		selected := false
		for _, path := range e.params {
			if len(path) > 0 {
				used[path[0]], selected = true, true
			}
		}
		whole = whole || e.reads[varParams] && !selected
	}
	for _, part := range r.path {
		if part.expr != nil {
			visit(part.expr)
		}
	}
	r.query.each(visit)
	r.body.each(visit)
	for _, h := range r.headers {
		h.value.each(visit)
	}
	return used, whole
}

// closed says whether a schema refuses members it does not name.
func closed(schema *yaml.Node) bool {
	for i := 0; schema.Kind == yaml.MappingNode && i+1 < len(schema.Content); i += 2 {
		if name := schema.Content[i].Value; name == "additionalProperties" || name == "unevaluatedProperties" {
			return schema.Content[i+1].Value == "false"
		}
	}
	return false
}

func propertyNames(schema *yaml.Node) []string {
	var names []string
	for i := 0; schema.Kind == yaml.MappingNode && i+1 < len(schema.Content); i += 2 {
		if schema.Content[i].Value != "properties" {
			continue
		}
		list := schema.Content[i+1].Content
		for j := 0; j+1 < len(list); j += 2 {
			names = append(names, list[j].Value)
		}
	}
	return names
}

// redact looks for pointers to what no action can have.
func (a adviser) redact() {
	for i, p := range a.builder.file.Redact.Params {
		found := false
		for _, f := range a.builder.file.Actions {
			found = found || mayHave(&f.Input, splitPointer(p))
		}
		if !found {
			a.problems.add(pointerAt("/redact/params", i), "no action's input has this member, so nothing is redacted")
		}
	}
}

// ReadYAML reads one YAML document of plain mappings, sequences and scalars as
// manifests are read (no anchors, tags, duplicate members, and at most 256 KiB)
// and gives it as JSON, members in order, numbers with their digits, and the
// line of every JSON Pointer. The error is a *connectors.ManifestError.
func ReadYAML(raw []byte) (json []byte, lines map[string]int, err error) {
	doc, bad := parseYAML(raw)
	if bad != nil {
		return nil, nil, bad
	}
	return doc.json, doc.lines, nil
}
