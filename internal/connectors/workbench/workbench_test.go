package workbench_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/connectors/workbench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bench(t testing.TB) *workbench.Bench {
	t.Helper()
	b, err := workbench.New()
	require.NoError(t, err)
	return b
}

// starter is the manifest and the fixtures that an author starts from.
func starter(t testing.TB) workbench.Subject {
	t.Helper()
	dir := t.TempDir()
	folder, err := workbench.Start(dir, "acme")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "acme", "1.0.0"), folder)
	found, err := workbench.Find([]string{dir})
	require.NoError(t, err)
	require.Len(t, found, 1)
	s := found[0]
	s.File, s.FixturesFile = "connector.yaml", "fixtures.yaml"
	return s
}

func TestStarterIsSound(t *testing.T) {
	s, b := starter(t), bench(t)
	require.Empty(t, b.Lint(t.Context(), s))
	require.Empty(t, b.Test(t.Context(), s))
	require.NotContains(t, string(s.Manifest)+string(s.Fixtures), "NAME")
	_, err := workbench.Start(t.TempDir(), "../x")
	require.ErrorIs(t, err, workbench.ErrName)
	dir := t.TempDir()
	_, err = workbench.Start(dir, "acme")
	require.NoError(t, err)
	_, err = workbench.Start(dir, "acme")
	require.ErrorIs(t, err, os.ErrExist, "nothing is overwritten")
}

// mistake is one slip of an author: what becomes what, in which file, and what
// lint says of it, with the line.
type mistake struct {
	name          string
	old, changed  string
	fixtures      bool
	line          string // text of the line the finding must name
	says          string
	alsoElsewhere bool // the slip has further consequences
}

func mistakes() []mistake {
	const refused = `      - {when: 'status in [400, 404, 422]', is: refused,`
	return []mistake{
		{name: "unknown member", old: "    effect: create #", changed: "    efect: create #", line: "    efect:", says: "no such member", alsoElsewhere: true},
		{name: "member twice", old: "    timeout: 15s", changed: "    timeout: 15s\n    timeout: 16s", line: "    timeout: 16s", says: "twice"},
		{name: "anchor", old: "{type: bearer, secret: token}", changed: "&a {type: bearer, secret: token}", line: "auth:", says: "anchors"},
		{name: "expression that needs quotes", old: `{$opt: "params.?note"}`, changed: `{$opt: params.?note}`, line: "        note: {$opt: params.?note}", says: "quote"},
		{name: "expression that is no CEL", old: "status == 201 && has", changed: "status = 201 && has", line: "status = 201", says: "CEL"},
		{name: "unknown variable", old: "{reference: {$: op.marker}}}", changed: "{reference: {$: op.maker}}}", line: "op.maker", says: "op.maker"},
		{name: "misspelt member of params", old: "{$: params.title}", changed: "{$: params.titel}", line: "params.titel", says: `no member ["titel"]`, alsoElsewhere: true},
		{name: "credential in a header", old: "      encoding: json\n", changed: "      encoding: json\n      headers: {Authorization: x}\n", line: "headers: {Authorization", says: "credential"},
		{name: "hop-by-hop header", old: "      encoding: json\n", changed: "      encoding: json\n      headers: {Transfer-Encoding: chunked}\n", line: "headers: {Transfer", says: "belongs to the connection"},
		{name: "refused on a server error", old: refused, changed: strings.Replace(refused, "422]", "500]", 1), line: "[400, 404, 500]", says: "status 500", alsoElsewhere: true},
		{name: "retryable on 408", old: `'status == 429'`, changed: `'status == 429 || status == 408'`, line: "status == 408", says: "status 408"},
		{name: "key that does not fit", old: "format: uuid, max_len: 36", changed: "format: uuid, max_len: 20", line: "max_len: 20", says: "36"},
		{name: "resend after the vendor forgot", old: "within: 23h", changed: "within: 25h", line: "within: 25h", says: "shorter than the retention"},
		{name: "look-up that writes", old: "{method: GET, path: /v1/things, query", changed: "{method: POST, path: /v1/things, query", line: "method: POST, path: /v1/things, query", says: "only reads"},
		{name: "timeout too long", old: "timeout: 15s", changed: "timeout: 11m", line: "timeout: 11m", says: "at most 10m"},
		{name: "plain http", old: `"https://api.vendor.example"`, changed: `"http://api.vendor.example"`, line: "allow:", says: "plain http", alsoElsewhere: true},
		{name: "dot segment in the path", old: "path: /v1/things\n", changed: "path: /v1/../things\n", line: "path: /v1/../things", says: "dot segment"},
		{name: "window too short", old: "    timeout: 15s", changed: "    timeout: 15s\n    window: 10s", line: "window: 10s", says: "60s", alsoElsewhere: true},
		// What the gateway takes, and lint warns of.
		{name: "success on any status", old: "status == 201 && has(body.id)", changed: "has(body.id)", line: "has(body.id)", says: "may match status 300"},
		{name: "rule that never decides", old: "'status == 429'", changed: "'status == 4290'", line: "4290", says: "never decides", alsoElsewhere: true},
		{name: "rate limit forgotten", old: `'status == 429'`, changed: `'status == 420'`, line: "    outcomes:", says: "429", alsoElsewhere: true},
		{name: "member that is not sent", old: "        note: {$opt: \"params.?note\"}\n", changed: "", line: "        note: {type: string", says: "would be lost"},
		{name: "open input", old: "      additionalProperties: false\n", changed: "", line: "    input:", says: "additionalProperties"},
		{name: "nothing is redacted", old: "params: [/note]", changed: "params: [/nota]", line: "redact:", says: "nothing is redacted"},
		{name: "key without a resend", old: "      - resend: {within: 23h}\n", changed: "", line: "    check:", says: "add a resend", alsoElsewhere: true},
		{name: "rule that no fixture shows", fixtures: true, old: "status: 422", changed: "status: 423", line: "422]", says: "no fixture shows this rule"},
		{name: "rule that a fixture only makes fail", fixtures: true, old: "        status: 201\n        body: {id: th_1, url: \"https://vendor.example/things/th_1\"}", changed: "        status: 201\n        text: <html>", line: "status == 201", says: "(succeeded)"},
		{name: "look-up that no fixture shows", fixtures: true, old: "body: {data: []}", changed: "body: {data: 1}", line: "- lookup", says: "found: none"},
		{name: "unknown member of a fixture", fixtures: true, old: "outcome: unknown}\n      - {name: another", changed: "outcum: unknown}\n      - {name: another", line: "outcum", says: "outcum", alsoElsewhere: true},
	}
}

func TestLintFindsSeededMistakes(t *testing.T) {
	require.GreaterOrEqual(t, len(mistakes()), 20)
	b, sound := bench(t), starter(t)
	for _, m := range mistakes() {
		t.Run(m.name, func(t *testing.T) {
			s := sound
			text := &s.Manifest
			if m.fixtures {
				text = &s.Fixtures
			}
			require.Equal(t, 1, strings.Count(string(*text), m.old), "%q", m.old)
			*text = []byte(strings.Replace(string(*text), m.old, m.changed, 1))

			found := b.Lint(t.Context(), s)
			require.NotEmpty(t, found)
			if !m.alsoElsewhere {
				require.Len(t, found, 1)
			}
			for _, f := range found {
				lines := strings.Split(string(s.Manifest), "\n")
				if f.File == s.FixturesFile {
					lines = strings.Split(string(s.Fixtures), "\n")
				}
				if strings.Contains(f.Reason, m.says) && f.Line > 0 && strings.Contains(lines[f.Line-1], m.line) {
					return
				}
			}
			require.Fail(t, "no finding says it at its line", "%v", found)
		})
	}
}

// Fixtures that say something else than the manifest does are found, each at
// its line.
func TestFixturesThatDoNotHold(t *testing.T) {
	b, sound := bench(t), starter(t)
	for _, row := range []struct{ old, changed, says string }{
		{"retry_after: 3s", "retry_after: 4s", "this is 3s"},
		{"reason: rate_limit", "reason: credential", `this is "rate_limit"`},
		{"code: bad_title}", "code: other}", `this is "bad_title"`},
		{"outcome: unknown}\n      - {name: another", "outcome: refused}\n      - {name: another", "judged unknown, by no rule"},
		{"        result: {id: th_1, url", "        result: {id: th_2, url", `this is {"id":"th_1"`},
		{"body: {title: A thing, reference", "body: {title: Another, reference", "the body is"},
		{"{Idempotency-Key: \"${vendor_key}\"}", "{Idempotency-Key: \"x\"}", "this header is"},
		{"method: POST", "method: PUT", "the method is POST"},
		{"url: https://api.vendor.example/v1/things", "url: https://api.vendor.example/v2/things", "the URL is"},
		{"found: none", "found: one", "this shows none"},
		{"        result: {id: th_1}", "        result: {id: th_2}", "this is"},
		{"step: 1\n", "step: 0\n", "no look-up"},
		{"  create_thing:", "  other_thing:", "no action of that name"},
		{"params: {title: A thing}", "params: {titel: A thing}", "params"},
		{"actions:\n", "actions: &a\n", "anchors"},
	} {
		s := sound
		require.Equal(t, 1, strings.Count(string(s.Fixtures), row.old), "%q", row.old)
		s.Fixtures = []byte(strings.Replace(string(s.Fixtures), row.old, row.changed, 1))
		found := b.Test(t.Context(), s)
		require.NotEmpty(t, found, row.changed)
		require.Contains(t, found[0].String(), row.says)
		require.Equal(t, "fixtures.yaml", found[0].File)
		require.Positive(t, found[0].Line)
	}
}

// A connector that takes a doubt for an answer is found by the faults.
func TestFaultsFindWhatIsUnsafe(t *testing.T) {
	b, sound := bench(t), starter(t)
	for _, row := range []struct{ old, changed, says string }{
		{"'status == 201 && has(body.id)'", "'status >= 200 && status < 300'", "HTML with status 200: this is judged succeeded"},
		{"'status == 201 && has(body.id)', is: succeeded", "'status == 201 || status == 307', is: succeeded", "status 307: this is judged succeeded"},
		{"'status == 429', is: retryable, retry_after: 'headers[\"retry-after\"]'", "'status == 429', is: refused", "status 429: this is judged refused"},
		{"'status == 429', is: retryable", "'status in [429, 502]', is: retryable, doc: \"https://vendor.example\"", "HTML with status 502: this is judged retryable"},
		{"'status in [400, 404, 422]', is: refused", "'status in [204, 400, 404, 422]', is: refused", "status 204: this is judged refused"},
	} {
		s := sound
		require.Equal(t, 1, strings.Count(string(s.Manifest), row.old), "%q", row.old)
		s.Manifest = []byte(strings.Replace(string(s.Manifest), row.old, row.changed, 1))
		f, err := workbench.ReadFixtures("fixtures.yaml", s.Fixtures)
		require.NoError(t, err)
		c, err := b.Compile(s.Manifest)
		require.NoError(t, err)
		found := b.Faults(t.Context(), c, f)
		require.Len(t, found, 1, "%s: %v", row.changed, found)
		require.Contains(t, found[0].Reason, row.says)
	}
}

// TestFaultsOfAConnectorWithOAuth: the faults are played although nobody hands
// out an access token here.
func TestFaultsOfAConnectorWithOAuth(t *testing.T) {
	b, s := bench(t), starter(t)
	auth := regexp.MustCompile(`(?m)^auth: .*$`)
	require.Len(t, auth.FindAllIndex(s.Manifest, -1), 1)
	s.Manifest = auth.ReplaceAll(s.Manifest, []byte(
		"auth: {type: oauth2_client_credentials, token_url: \"https://vendor.example/token\", client_id: id, client_secret: secret}"))
	f, err := workbench.ReadFixtures("fixtures.yaml", s.Fixtures)
	require.NoError(t, err)
	c, err := b.Compile(s.Manifest)
	require.NoError(t, err)
	require.Empty(t, b.Faults(t.Context(), c, f))
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	_, err := workbench.Find([]string{dir})
	require.ErrorContains(t, err, "there is no connector.yaml")
	_, err = workbench.Find([]string{filepath.Join(dir, "absent")})
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, name := range []string{"a.yaml", "a.fixtures.yaml", "b.yaml", "README.md"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
	}
	found, err := workbench.Find([]string{dir, filepath.Join(dir, "a.yaml")})
	require.NoError(t, err)
	require.Len(t, found, 3)
	require.Equal(t, "a.fixtures.yaml", string(found[0].Fixtures))
	require.Nil(t, found[1].Fixtures)
	require.Equal(t, filepath.Join(dir, "b.fixtures.yaml"), found[1].FixturesFile)
}

func FuzzFixtures(f *testing.F) {
	s := starter(f)
	b := bench(f)
	c, err := b.Compile(s.Manifest)
	require.NoError(f, err)
	f.Add(s.Fixtures)
	f.Add([]byte("actions: {create_thing: {answers: [{status: 1}]}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fixtures, err := workbench.ReadFixtures("f", raw)
		if err != nil {
			return
		}
		for _, found := range fixtures.Run(t.Context(), c) {
			require.NotEmpty(t, found.Reason)
		}
	})
}
