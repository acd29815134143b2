package workbench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/connectors"
)

// Run plans, judges and looks up what the fixtures say, and finds every rule and
// every look-up that no fixture shows at work.
func (f *Fixtures) Run(ctx context.Context, c connectors.Connector) []Finding {
	r := runner{Fixtures: f, ctx: ctx, connector: c, spec: c.Spec()}
	names := make([]string, 0, len(f.Actions))
	for name := range f.Actions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if _, ok := r.spec.Actions[name]; !ok {
			r.add(pointer("actions", name), "the manifest has no action of that name")
			continue
		}
		r.action(name, f.Actions[name])
	}
	if f.Test != nil {
		r.test(f.Test)
	}
	return r.found
}

type runner struct {
	*Fixtures
	ctx       context.Context
	connector connectors.Connector
	spec      connectors.Spec
	found     []Finding
}

func (r *runner) add(at, format string, args ...any) {
	r.found = append(r.found, r.finding(at, format, args...))
}

// pointer joins names; none of ours needs an escape.
func pointer(names ...string) string { return "/" + strings.Join(names, "/") }

func (r *runner) action(name string, f ActionFixtures) {
	at := pointer("actions", name)
	for i, a := range f.Answers {
		r.answer(name, f, a, at+"/answers/"+strconv.Itoa(i))
	}
	for i, l := range f.Lookups {
		r.lookup(name, f, l, at+"/lookups/"+strconv.Itoa(i))
	}
	if f.Request != nil {
		if op, ok := r.op(name, f, nil, at+"/params"); ok {
			r.request(op, f.Request, at+"/request")
		}
	}
}

// op is the write a fixture is about.
func (r *runner) op(action string, f ActionFixtures, params []byte, at string) (connectors.Op, bool) {
	if len(params) == 0 {
		params = f.Params
	}
	op, err := OpOf(r.spec, action, orObject(params), orObject(f.Config), f.BaseURL)
	if err != nil {
		r.add(at, "%v", err)
	}
	return op, err == nil
}

// OpOf is the write that fixtures are about: claimed at a fixed time, under a
// fixed marker and key.
func OpOf(spec connectors.Spec, action string, params, config []byte, base string) (connectors.Op, error) {
	if err := spec.ValidateInput(action, params); err != nil {
		return connectors.Op{}, fmt.Errorf("params: %w", err)
	}
	if err := spec.ValidateConfig(config); err != nil {
		return connectors.Op{}, fmt.Errorf("config: %w", err)
	}
	key, err := spec.Actions[action].VendorKey([32]byte{0: 1, 31: 2})
	if err != nil {
		return connectors.Op{}, fmt.Errorf("vendor key: %w", err)
	}
	if base == "" && spec.BaseURL.Default == "" {
		base = anyBase(spec)
	}
	return connectors.Op{
		Action: action, Params: params, Config: config, BaseURL: base,
		Marker: Marker, VendorKey: key, Started: time.Unix(started, 0).UTC(),
	}, nil
}

func (r *runner) request(op connectors.Op, want *RequestFixture, at string) {
	got, err := r.connector.Plan(r.ctx, op)
	if err != nil {
		r.add(at, "the request cannot be planned: %v", err)
		return
	}
	r.compare(got, op, want, at)
}

func (r *runner) compare(got connectors.Request, op connectors.Op, want *RequestFixture, at string) {
	if want.Method != "" && got.Method != want.Method {
		r.add(at+"/method", "the method is %s", got.Method)
	}
	if url := fill(want.URL, op); url != "" && got.URL != url {
		r.add(at+"/url", "the URL is %s", got.URL)
	}
	for name, value := range want.Headers {
		if have := got.Header.Get(name); have != fill(value, op) {
			r.add(at+"/headers/"+name, "this header is %q", have)
		}
	}
	if want.Text != nil && string(got.Body) != fill(*want.Text, op) {
		r.add(at+"/text", "the body is %s", got.Body)
	}
	if len(want.Body) > 0 && !sameJSON(got.Body, []byte(fill(string(want.Body), op))) {
		r.add(at+"/body", "the body is %s", got.Body)
	}
}

// fill puts in what a fixture cannot know.
func fill(text string, op connectors.Op) string {
	return strings.NewReplacer("${marker}", op.Marker, "${vendor_key}", op.VendorKey,
		"${started_unix}", strconv.FormatInt(op.Started.Unix(), 10)).Replace(text)
}

// as is the answer as the wire would hand it over.
func (a answer) as(op connectors.Op) connectors.Answer {
	body := a.Text
	if len(a.Body) > 0 {
		body = string(a.Body)
	}
	out := connectors.Answer{Status: a.Status, Header: http.Header{}, Body: []byte(fill(body, op)), Whole: true}
	if len(a.Body) > 0 {
		out.Header.Set("Content-Type", "application/json")
	}
	for name, value := range a.Headers {
		out.Header.Set(name, value)
	}
	return out
}

func (r *runner) answer(action string, f ActionFixtures, want AnswerFixture, at string) {
	op, ok := r.op(action, f, want.Params, at+"/params")
	if !ok {
		return
	}
	if want.Request != nil {
		r.request(op, want.Request, at+"/request")
	}
	v, err := r.connector.Judge(r.ctx, op, want.as(op))
	if err != nil {
		r.add(at, "the answer cannot be judged: %v", err)
		return
	}
	if v.Outcome != want.Outcome {
		r.add(at+"/outcome", "this is judged %s, by %s", v.Outcome, decidedBy(v))
		return
	}
	for _, word := range []struct {
		name string
		want *string
		got  string
	}{{"code", want.Code, v.Code}, {"message", want.Message, v.Message}} {
		if word.want != nil && fill(*word.want, op) != word.got {
			r.add(at+"/"+word.name, "this is %q", word.got)
		}
	}
	if want.Reason != "" && want.Reason != v.Reason {
		r.add(at+"/reason", "this is %q", v.Reason)
	}
	if want.RetryAfter != "" && want.RetryAfter != v.RetryAfter.String() {
		r.add(at+"/retry_after", "this is %s", v.RetryAfter)
	}
	if len(want.Result) > 0 && !sameJSON(v.Result, []byte(fill(string(want.Result), op))) {
		r.add(at+"/result", "this is %s", v.Result)
	}
}

func decidedBy(v connectors.Verdict) string {
	switch v.Doubt {
	case connectors.DoubtNoRule:
		return "no rule"
	case connectors.DoubtRuleFailed:
		return fmt.Sprintf("rule %d (counted from 0), which cannot be decided for this answer", v.Rule)
	case connectors.DoubtBody:
		return "its body, which is not what its headers say"
	default:
		return fmt.Sprintf("rule %d (counted from 0)", v.Rule)
	}
}

func (r *runner) lookup(action string, f ActionFixtures, want LookupFixture, at string) {
	op, ok := r.op(action, f, want.Params, at+"/params")
	if !ok {
		return
	}
	steps, err := r.connector.Check(r.ctx, op)
	if err != nil {
		r.add(at, "the check cannot be planned: %v", err)
		return
	}
	if want.Step < 0 || want.Step >= len(steps) || steps[want.Step].Kind != connectors.Lookup {
		r.add(at+"/step", "step %d of the check is no look-up; steps count from 0, resends included", want.Step)
		return
	}
	if url := fill(want.URL, op); url != "" && url != steps[want.Step].Request.URL {
		r.add(at+"/url", "the URL is %s", steps[want.Step].Request.URL)
	}
	found, err := r.connector.MatchLookup(r.ctx, op, want.Step, want.as(op))
	if err != nil {
		r.add(at, "the answer cannot be read: %v", err)
		return
	}
	if found.Kind != want.Found {
		r.add(at+"/found", "this shows %s", found.Kind)
		return
	}
	if len(want.Result) > 0 && !sameJSON(found.Result, []byte(fill(string(want.Result), op))) {
		r.add(at+"/result", "this is %s", found.Result)
	}
}

func (r *runner) test(f *TestFixtures) {
	if !r.spec.Tests {
		r.add("/test", "the manifest has no test call")
		return
	}
	config, base, err := r.testOf(f)
	if err != nil {
		r.add("/test/config", "%v", err)
		return
	}
	got, err := r.connector.PlanTest(r.ctx, config, base)
	switch {
	case err != nil:
		r.add("/test", "the request cannot be planned: %v", err)
	case f.Request != nil:
		r.compare(got, connectors.Op{}, f.Request, "/test/request")
	}
	for i, a := range f.Answers {
		passes, err := r.connector.JudgeTest(r.ctx, config, a.as(connectors.Op{}))
		if err != nil || passes != a.Passes {
			r.add("/test/answers/"+strconv.Itoa(i)+"/passes", "this is %t", passes && err == nil)
		}
	}
}

func (r *runner) testOf(f *TestFixtures) (config []byte, base string, err error) {
	config, base = orObject(f.Config), f.BaseURL
	if err := r.spec.ValidateConfig(config); err != nil {
		return nil, "", fmt.Errorf("config: %w", err)
	}
	if base == "" && r.spec.BaseURL.Default == "" {
		base = anyBase(r.spec)
	}
	return config, base, nil
}

// anyBase is a base URL that a connector without a default allows.
func anyBase(spec connectors.Spec) string {
	return strings.Replace(strings.TrimSuffix(spec.BaseURL.Allow[0], "/"), "*.", "any.", 1)
}

// Uncovered finds the rules and look-ups of a manifest that no fixture shows at
// work, as problems of the manifest.
func (f *Fixtures) Uncovered(ctx context.Context, c connectors.Connector) []connectors.ManifestProblem {
	var list []connectors.ManifestProblem
	spec := c.Spec()
	names := make([]string, 0, len(spec.Actions))
	for name := range spec.Actions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		rules, found := f.shown(ctx, c, name)
		for i, outcome := range spec.Actions[name].Outcomes {
			if !rules[i] {
				list = append(list, connectors.ManifestProblem{
					Pointer: pointer("actions", name, "outcomes", strconv.Itoa(i)),
					Reason:  fmt.Sprintf("no fixture shows this rule (%s) at work: add an answer that it decides", outcome),
				})
			}
		}
		for i, step := range spec.Actions[name].Checks {
			for _, kind := range []connectors.FoundKind{connectors.FoundOne, connectors.FoundNone} {
				if step.Kind == connectors.Lookup && !found[i][kind] {
					list = append(list, connectors.ManifestProblem{
						Pointer: pointer("actions", name, "check", strconv.Itoa(i)),
						Reason:  fmt.Sprintf("no fixture shows this look-up with found: %s", kind),
					})
				}
			}
		}
	}
	return append(list, f.uncoveredTest(spec)...)
}

func (f *Fixtures) uncoveredTest(spec connectors.Spec) []connectors.ManifestProblem {
	if !spec.Tests {
		return nil
	}
	shown := map[bool]bool{}
	if f.Test != nil {
		for _, a := range f.Test.Answers {
			shown[a.Passes] = true
		}
	}
	if shown[true] && shown[false] {
		return nil
	}
	return []connectors.ManifestProblem{{Pointer: "/test", Reason: "fixtures must show one answer that passes the test call and one that does not"}}
}

// shown says which rules decide the answers of an action's fixtures, and what
// its look-ups find.
func (f *Fixtures) shown(ctx context.Context, c connectors.Connector, action string) (map[int]bool, map[int]map[connectors.FoundKind]bool) {
	rules, found := map[int]bool{}, map[int]map[connectors.FoundKind]bool{}
	fixtures := f.Actions[action]
	op := func(params []byte) (connectors.Op, error) {
		if len(params) == 0 {
			params = fixtures.Params
		}
		return OpOf(c.Spec(), action, orObject(params), orObject(fixtures.Config), fixtures.BaseURL)
	}
	for _, a := range fixtures.Answers {
		one, err := op(a.Params)
		if err != nil {
			continue
		}
		if v, err := c.Judge(ctx, one, a.as(one)); err == nil && v.Doubt != connectors.DoubtRuleFailed {
			rules[v.Rule] = true
		}
	}
	for _, l := range fixtures.Lookups {
		one, err := op(l.Params)
		if err != nil {
			continue
		}
		if got, err := c.MatchLookup(ctx, one, l.Step, l.as(one)); err == nil {
			if found[l.Step] == nil {
				found[l.Step] = map[connectors.FoundKind]bool{}
			}
			found[l.Step][got.Kind] = true
		}
	}
	return rules, found
}

var errNoFixtures = errors.New("there are no fixtures: say in this file what the vendor answers and what must be made of it, as docs/connectors.md shows")
