package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"holdfast.dev/gateway/internal/api/apitest"
	"holdfast.dev/gateway/internal/connectors/manifest"
	"holdfast.dev/gateway/internal/docstest"
	"holdfast.dev/gateway/internal/strictjson"
)

// The pages are held against the program: each fenced block is run, or checked
// by what its info string says it is, and a block of no known kind fails. What
// the words mean is in CONTRIBUTING.md ("Where does this test go?").

const root = "../.."

// docPages reads every page of the project.
func docPages(t *testing.T) []docstest.Page {
	t.Helper()
	var pages []docstest.Page
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/llms.txt", "examples/*.md", "examples/*/*.md", "deploy/*.md", "deploy/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			name, err := filepath.Rel(root, file)
			require.NoError(t, err)
			page, err := docstest.Parse(filepath.ToSlash(name), string(source))
			require.NoError(t, err)
			pages = append(pages, page)
		}
	}
	return pages
}

// docMarks are the words behind sh that keep a block out of a page's session,
// because it needs a tool that is not on every machine: which make target has
// the tool and runs the blocks (TestDocsMarked). "ci" is no such word: those are
// the commands that .ci/run itself makes.
func docMarks() map[string]string {
	return map[string]string{"chart": "chart"}
}

// TestDocs runs each page's shell blocks in one shell, in order, in a folder of
// the page's own, and checks all others.
func TestDocs(t *testing.T) {
	for _, page := range docPages(t) {
		t.Run(strings.ReplaceAll(page.Path, "/", "."), func(t *testing.T) {
			t.Parallel()
			for _, b := range page.Blocks {
				if err := checkBlock(b); err != nil {
					t.Errorf("%s: %v", b.Place(), err)
				}
			}
			if !t.Failed() {
				follow(t, page, "")
			}
		})
	}
}

// checkBlock checks a block as its info string asks; those of kind sh are run
// later, and text is compared with what they print.
func checkBlock(b docstest.Block) error {
	if file := b.Value("file"); file != "" {
		return sameAsFile(b.Text, file)
	}
	switch b.Kind {
	case "sh":
		return checkShellWords(b)
	case "text":
		if b.Word("diagram") && runnable.MatchString(b.Text) {
			return errors.New("this is a command or a request and no picture: make it sh, or say it in the sentence")
		}
		return only(b, "diagram")
	case "json":
		return checkJSON(b)
	case "yaml":
		return checkYAML(b)
	default:
		return fmt.Errorf("no test knows what to do with a block of kind %q", b.Kind)
	}
}

// runnable is what a picture does not begin a line with.
var runnable = regexp.MustCompile(`(?m)^\s*(?:\$|gateway|curl|make|go|docker|helm|kubectl|redis-cli|GET|POST|PUT|DELETE|PATCH) `)

// TestDocsPictures: what nobody checks is listed here, so that it stays little.
func TestDocsPictures(t *testing.T) {
	pictures := map[string]int{}
	for _, page := range docPages(t) {
		for _, b := range page.Blocks {
			if b.Word("diagram") {
				pictures[page.Path]++
			}
		}
	}
	require.Equal(t, map[string]int{"docs/design.md": 1, "docs/audit.md": 3}, pictures)
}

// only insists on at most one word, out of those named.
func only(b docstest.Block, words ...string) error {
	if len(b.Words) == 0 || len(b.Words) == 1 && slices.Contains(words, b.Words[0]) {
		return nil
	}
	return fmt.Errorf("a block of kind %s has no words %q; it may have one of %q", b.Kind, b.Words, words)
}

// sameAsFile insists that a block shows a file of the project, all of it.
func sameAsFile(text, file string) error {
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		return err
	}
	if string(content) != text {
		return fmt.Errorf("this is not what %s says", file)
	}
	return nil
}

func checkShellWords(b docstest.Block) error {
	if b.Word("mcp-client") {
		return checkMCPCommand(b.Text)
	}
	words := []string{"terminal", "ci"}
	for mark := range docMarks() {
		words = append(words, mark)
	}
	if err := only(b, words...); err != nil || !b.Word("ci") {
		return err
	}
	run, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(b.Text) {
		command, _, _ := strings.Cut(line, "#")
		command = strings.TrimSpace(command)
		if command != "" && !strings.Contains(string(run), "\nstep "+command) {
			return fmt.Errorf("CI does not run %q", command)
		}
	}
	return nil
}

// checkJSON: a block of JSON names the schema of openapi.yaml that it is one of,
// or says that it is the configuration of an MCP client or a model's tool call.
func checkJSON(b docstest.Block) error {
	if len(b.Words) != 1 {
		return errors.New("say behind json what it is: the name of a schema in openapi.yaml, mcp-client, or file=PATH")
	}
	if err := strictjson.Check([]byte(strings.TrimSpace(b.Text))); err != nil {
		return err
	}
	if b.Word("mcp-client") {
		return checkMCPClient(b.Text)
	}
	if b.Word("openai-call") || b.Word("anthropic-call") {
		_, err := checkToolCall(b)
		return err
	}
	return apitest.CheckSchema(b.Words[0], []byte(b.Text))
}

// mcpServer is a server as clients' configurations have it.
type mcpServer struct {
	Type, URL, Command string
	Args               []string
	Env, Headers       map[string]string
}

// checkMCPClient: every server in the configuration is a gateway's /mcp with a
// key, or the bridge with its two variables.
func checkMCPClient(text string) error {
	var config map[string]map[string]mcpServer
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&config); err != nil {
		return err
	}
	for _, servers := range config {
		for name, s := range servers {
			overHTTP := strings.HasSuffix(s.URL, "/mcp") && strings.HasPrefix(s.Headers["Authorization"], "Bearer ")
			bridge := s.Command != "" && slices.Equal(s.Args, []string{"mcp"}) && s.Env[envURL] != "" && s.Env[envKey] != ""
			if overHTTP == bridge {
				return fmt.Errorf("server %s is neither a gateway's /mcp nor the bridge", name)
			}
		}
	}
	return nil
}

var mcpClientAdd = regexp.MustCompile(`^claude mcp add (--transport http [a-z]+ http\S+/mcp --header "Authorization: Bearer hf_\S+"|` +
	`[a-z]+ --env GATEWAY_URL=http\S+ --env GATEWAY_KEY=hf_\S+ -- \S*/gateway mcp)$`)

// checkMCPCommand: the client is none that a test could install, so what counts
// is that it is told a gateway's /mcp and a key.
func checkMCPCommand(text string) error {
	if !mcpClientAdd.MatchString(strings.TrimSpace(text)) {
		return errors.New("this does not tell a client where the gateway is, and its key")
	}
	return nil
}

// checkYAML: a connector must compile, settings must load. What a reader saves
// is used by the commands that follow, too.
func checkYAML(b docstest.Block) error {
	if len(b.Words) != 1 {
		return errors.New("say behind yaml what it is: connector, fixtures, settings or values")
	}
	switch b.Words[0] {
	case "connector":
		compiler, err := manifest.NewCompiler()
		if err != nil {
			return err
		}
		_, err = compiler.Compile([]byte(b.Text))
		return err
	case "fixtures":
		if b.SaveAs == "" {
			return errors.New("fixtures are saved beside a connector, where connectors test finds them")
		}
		var any map[string]any
		return yaml.NewDecoder(bytes.NewReader([]byte(b.Text))).Decode(&any)
	case "settings":
		return checkSettings(b.Text)
	case "values":
		return checkChartValues(b.Text)
	default:
		return fmt.Errorf("no test knows what to do with yaml %q", b.Words[0])
	}
}

func checkSettings(text string) error {
	dir, err := os.MkdirTemp("", "settings-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "gateway.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	_, err = loadConfig(map[string]string{}, nil, file)
	return err
}

// checkChartValues holds values, over the chart's own, against its schema.
func checkChartValues(text string) error {
	schema, err := os.ReadFile(filepath.Join(root, "deploy", "helm", "values.schema.json"))
	if err != nil {
		return err
	}
	compiled, err := compileSchema(schema)
	if err != nil {
		return err
	}
	defaults, err := os.ReadFile(filepath.Join(root, "deploy", "helm", "values.yaml"))
	if err != nil {
		return err
	}
	var values, given map[string]any
	if err := errors.Join(yaml.Unmarshal(defaults, &values), yaml.Unmarshal([]byte(text), &given)); err != nil {
		return err
	}
	return compiled.Validate(overlaid(values, given))
}

// overlaid lays values over others, as helm does.
func overlaid(values, over map[string]any) map[string]any {
	for name, value := range over {
		below, isMap := values[name].(map[string]any)
		if above, ok := value.(map[string]any); ok && isMap {
			value = overlaid(below, above)
		}
		values[name] = value
	}
	return values
}

// TestDocsKinds: what no test would run or check is refused.
func TestDocsKinds(t *testing.T) {
	for _, row := range []struct{ info, text, fault string }{
		{"", "ls\n", "no test knows"},
		{"bash", "ls\n", "no test knows"},
		{"mermaid", "a\n", "no test knows"},
		{"sh skip", "ls\n", "has no words"},
		{"sh ci", "make everything\n", "CI does not run"},
		{"sh ci", "make test  # all of it\n", ""},
		{"text picture", "a\n", "has no words"},
		{"text diagram", "a\n", ""},
		{"text diagram", "then\n  curl x\n", "no picture"},
		{"json", "{}\n", "say behind json"},
		{"json DoRequest", "{\n", "JSON"},
		{"json DoRequest", `{"connection":"c"}`, "action"},
		{"json DoRequest", `{"connection":"c","action":"a"}`, ""},
		{"json Nothing", `{}`, "no schema"},
		{"json mcp-client", `{"mcpServers":{"h":{"url":"http://x"}}}`, "neither"},
		{"sh mcp-client", "claude mcp add holdfast\n", "does not tell"},
		{"yaml", "a: 1\n", "say behind yaml"},
		{"yaml settings", "stor: x\n", "is no setting"},
		{"yaml settings", "lease: 40s\n", ""},
		{"yaml values", "replicaCount: two\n", "replicaCount"},
		{"yaml values", "existingSecret: s\n", ""},
		{"yaml connector", "kind: x\n", "apiVersion"},
		{"python file=LICENSE", "print()\n", "is not what LICENSE says"},
	} {
		t.Run(row.info+" "+row.text, func(t *testing.T) {
			page, err := docstest.Parse("a.md", "```"+row.info+"\n"+row.text+"\n```\n")
			require.NoError(t, err)
			err = checkBlock(page.Blocks[0])
			if row.fault == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.fault)
			}
		})
	}
}

// TestDocsMarked runs the blocks of one mark, named by DOCS_MARK, where the tool
// is; without it, that each mark has a target that does so.
func TestDocsMarked(t *testing.T) {
	if mark := os.Getenv("DOCS_MARK"); mark != "" {
		require.Contains(t, docMarks(), mark)
		for _, page := range docPages(t) {
			t.Run(strings.ReplaceAll(page.Path, "/", "."), func(t *testing.T) { follow(t, page, mark) })
		}
		return
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	run, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	require.NoError(t, err)
	for mark, target := range docMarks() {
		require.Contains(t, string(makefile), "\n"+target+":", "make %s runs the blocks marked %s", target, mark)
		require.Contains(t, string(makefile), "DOCS_MARK="+mark)
		require.Contains(t, string(run), "\nstep make "+target)
	}
}
