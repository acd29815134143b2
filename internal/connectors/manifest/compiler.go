package manifest

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"

	"holdfast.dev/gateway/internal/connectors"
)

//go:embed schema.yaml
var schemaYAML []byte

// Compiler compiles manifests. It is immutable and safe for concurrent use.
type Compiler struct {
	schema *connectors.Schema
	envs   environments
}

// NewCompiler makes a Compiler. It fails only if this release is broken.
func NewCompiler() (*Compiler, error) {
	doc, bad := parseYAML(schemaYAML)
	if bad != nil {
		return nil, fmt.Errorf("read manifest schema: %w", bad)
	}
	schema, err := connectors.CompileSchema(doc.json)
	if err != nil {
		return nil, fmt.Errorf("compile manifest schema: %w", err)
	}
	envs, err := newEnvironments()
	if err != nil {
		return nil, err
	}
	return &Compiler{schema: schema, envs: envs}, nil
}

// Compile checks a manifest and makes it a connector. The error is a
// *connectors.ManifestError that lists every problem with its line. It is a
// connectors.CompileFunc.
func (c *Compiler) Compile(raw []byte) (connectors.Connector, error) {
	_, built, err := c.compile(raw)
	if err != nil {
		return nil, err
	}
	return built, nil
}

func (c *Compiler) compile(raw []byte) (*builder, *connector, error) {
	raw = bytes.Clone(raw)
	doc, bad := parseYAML(raw)
	if bad != nil {
		return nil, nil, bad
	}
	p := &problems{lines: doc.lines}
	if err := c.schema.Validate(doc.json); err != nil {
		return nil, nil, p.shape(err)
	}
	var f file
	if err := doc.root.Decode(&f); err != nil {
		return nil, nil, refuseYAML(err)
	}
	b := builder{problems: p, envs: c.envs, file: &f}
	built := b.build()
	if err := p.err(); err != nil {
		return nil, nil, err
	}
	built.spec.Sum = sha256.Sum256(raw)
	return &b, built, nil
}

// shape turns a failed schema validation into problems with lines.
func (p *problems) shape(err error) error {
	var invalid *connectors.InputError
	if !errors.As(err, &invalid) {
		return refuse(0, "this does not look like a manifest")
	}
	for _, one := range invalid.Problems {
		p.add(one.Pointer, "%s", one.Reason)
	}
	return p.err()
}

// builder turns a manifest of the right shape into a connector.
type builder struct {
	*problems
	envs environments
	file *file

	spec     connectors.Spec
	requests requestCompiler
}

func (b *builder) build() *connector {
	f := b.file
	b.spec = connectors.Spec{
		Name: f.Metadata.Name, Version: f.Metadata.Version,
		Docs: f.Metadata.Docs, VendorAPI: f.Metadata.VendorAPI,
		Auth:    b.auth(),
		Config:  b.schema(&f.Config, "/config"),
		BaseURL: b.baseURL(),
		Redact:  connectors.Redact{Params: f.Redact.Params, Response: f.Redact.Response},
		Limits:  b.limits(),
		Actions: make(map[string]connectors.ActionSpec, len(f.Actions)),
	}
	b.requests = requestCompiler{problems: b.problems, env: b.envs.request, authIn: b.spec.Auth}
	b.requests.static = b.requests.compileStatic(f.Headers)

	actions := make(map[string]*action, len(f.Actions))
	names := make([]string, 0, len(f.Actions))
	for name := range f.Actions {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		a := b.action(name, f.Actions[name])
		actions[name] = a
		b.spec.Actions[name] = a.spec
	}
	test := b.test(f.Test)
	b.spec.Tests = test != nil
	return &connector{spec: b.spec, actions: actions, test: test}
}

func (b *builder) auth() connectors.Auth {
	f := b.file.Auth
	a := connectors.Auth{
		Type: connectors.AuthType(f.Type), Secret: f.Secret, Username: f.Username, Password: f.Password,
		In: f.In, Name: f.Name, TokenURL: f.TokenURL, ClientID: f.ClientID, ClientSecret: f.ClientSecret,
		RefreshToken: f.RefreshToken, Scopes: f.Scopes, ClientAuth: f.ClientAuth, Rotates: f.Rotates,
	}
	if a.Type == connectors.Bearer {
		a.Prefix = "Bearer"
		if f.Prefix != nil {
			a.Prefix = *f.Prefix
		}
	}
	if a.Type == connectors.APIKey && a.In == "header" && slices.Contains(wireHeaders, canonical(a.Name)) {
		b.add("/auth/name", "this header belongs to the connection and cannot carry a credential")
	}
	return a
}

func (b *builder) limits() connectors.RateLimits {
	f := b.file.RateLimit
	return connectors.RateLimits{
		Limit: f.Limit, Remaining: f.Remaining, ResetSeconds: f.ResetSeconds, ResetEpoch: f.ResetEpoch,
		RetryAfter: f.RetryAfter, Scope: f.Scope,
		BudgetRequests: f.Budget.Requests, BudgetPer: b.duration("/rate_limit/budget/per", f.Budget.Per),
	}
}

// baseURL checks the allow list, and picks a default where there is no choice.
func (b *builder) baseURL() connectors.BaseURL {
	f := b.file.BaseURL
	for i, allowed := range f.Allow {
		b.allowed(child("/base_url/allow", fmt.Sprint(i)), allowed)
	}
	base := connectors.BaseURL{Default: strings.TrimSuffix(f.Default, "/"), Allow: f.Allow}
	only := f.Allow[0]
	if base.Default == "" && len(f.Allow) == 1 && strings.HasPrefix(only, "https://") && !strings.Contains(only, "*") {
		base.Default = strings.TrimSuffix(only, "/")
	}
	if base.Default != "" {
		spec := connectors.Spec{BaseURL: base}
		if err := spec.CheckBaseURL(base.Default, func(string) bool { return true }); err != nil {
			b.add("/base_url/default", "%v", err)
		}
	}
	return base
}

func (b *builder) allowed(pointer, entry string) {
	clean := strings.TrimSuffix(entry, "/")
	wild := strings.Contains(clean, "://*.")
	_, host, err := connectors.SplitBaseURL(strings.Replace(clean, "://*.", "://", 1))
	switch {
	case err != nil:
		b.add(pointer, "%v", err)
	case wild && (connectors.LocalHost(host) || !strings.Contains(host, ".")):
		b.add(pointer, "a wildcard must stand below a registered domain")
	case strings.HasPrefix(clean, "http://") && !connectors.LocalHost(host):
		b.add(pointer, "plain http is only for an IP address or localhost")
	}
}

// schema compiles a JSON Schema that stands in the manifest.
func (b *builder) schema(n *yaml.Node, pointer string) *connectors.Schema {
	if absent(n) {
		return nil
	}
	g := guard{lines: make(map[string]int)}
	if bad := g.node(n, "", 0); bad != nil {
		b.add(pointer, "%s", bad.Problems[0].Reason)
		return nil
	}
	s, err := connectors.CompileSchema(g.out.Bytes())
	if err != nil {
		b.add(pointer, "%s", firstLine(err))
		return nil
	}
	return s
}

func firstLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
