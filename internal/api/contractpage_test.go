package api_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	root "holdfast.dev/gateway"
	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
)

// docs/replay-contract.md lists every status and body. That part of it is written
// by this test, with -update, out of the table of problems and the examples in
// openapi.yaml (which other tests hold against the table, and the linter against
// their schemas).

var update = flag.Bool("update", false, "write the lists of docs/replay-contract.md")

const contractPage = "../../docs/replay-contract.md"

func TestReplayContractPage(t *testing.T) {
	raw, err := os.ReadFile(contractPage)
	require.NoError(t, err)
	page := string(raw)
	page = between(t, page, "codes", tableOfCodes(t))
	page = between(t, page, "bodies", bodiesOfCodes(t))
	if *update {
		require.NoError(t, os.WriteFile(contractPage, []byte(page), 0o644)) //nolint:gosec // a page for all to read
	}
	require.Equal(t, string(raw), page, "go test ./internal/api -run TestReplayContractPage -update writes it")
}

// between replaces what stands between two marks.
func between(t *testing.T, page, name, text string) string {
	t.Helper()
	begin, end := "<!-- "+name+": written by go test ./internal/api -run TestReplayContractPage -update -->\n", "<!-- end of "+name+" -->\n"
	before, rest, ok := strings.Cut(page, begin)
	require.True(t, ok, begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, end)
	return before + begin + "\n" + text + "\n" + end + after
}

// sentToVendor says of each code whether the request that got it was sent.
func sentToVendor() map[actions.Code]string {
	const no, first = "no", "the first time; repeats are not sent"
	return map[actions.Code]string{
		actions.InvalidJSON: no, actions.InvalidRequest: no, actions.InvalidBody: no, actions.InvalidKey: no,
		"unauthenticated": no, actions.Forbidden: no, actions.ConnectionPaused: no, actions.TenantSuspended: no,
		actions.UnknownConnection: no, actions.UnknownAction: no, actions.NotFound: no, "method_not_allowed": no,
		actions.InFlight: no, actions.NotHeld: no, actions.StillPossible: no, actions.CheckRunning: no,
		"connection_fixed": no, "unsettled_writes": no, "already_exists": no, "connector_in_use": no,
		"too_large": no, "unsupported_media_type": no, actions.KeyReused: no,
		actions.OutcomeUnknown: first, actions.AnswerNotSaved: first, actions.VendorRefused: first, actions.TwinUnsettled: no,
		actions.RateLimited: no, actions.VendorRateLimited: "yes; not done", actions.NotSent: "no, proven",
		actions.VendorUnavailable: "yes; not done", actions.StoreUnavailable: no, actions.Draining: no,
		actions.AnswerUnreadable: "perhaps, before; not now", actions.Internal: "perhaps; never twice",
	}
}

// codesInOrder lists the codes by status, then as openapi.yaml has them.
func codesInOrder(t *testing.T) []actions.Code {
	var codes []actions.Code
	for _, code := range description(t).Components.Schemas["Code"].Value.Enum {
		codes = append(codes, actions.Code(code.(string)))
	}
	slices.SortStableFunc(codes, func(a, b actions.Code) int { return api.StatusOf(a) - api.StatusOf(b) })
	return codes
}

func tableOfCodes(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| status | `code` | `next` | `Retry-After` | sent to the vendor? | on `do` |\n|---|---|---|---|---|---|\n")
	sent := sentToVendor()
	for _, code := range codesInOrder(t) {
		require.Contains(t, sent, code, "say whether the vendor was called")
		fmt.Fprintf(&b, "| %d | [`%s`](#%d-%s) | `%s` | %s | %s | %s |\n", api.StatusOf(code), code, api.StatusOf(code), code,
			api.NextOf(code), word(api.RetryOf(code), "always", "–"), sent[code], word(onDo(t, code), "yes", "–"))
	}
	return b.String()
}

func word(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// onDo says whether openapi.yaml has the code among the answers of `do`.
func onDo(t *testing.T, code actions.Code) bool {
	responses := description(t).Paths.Value("/v1/do").Post.Responses
	response := responses.Status(api.StatusOf(code))
	return response != nil && response.Value.Content["application/problem+json"].Examples[string(code)] != nil
}

func bodiesOfCodes(t *testing.T) string {
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal(root.OpenAPI(), &doc))
	examples := member(t, member(t, doc.Content[0], "components"), "examples")
	var b strings.Builder
	for _, code := range codesInOrder(t) {
		fmt.Fprintf(&b, "### %d `%s`\n\n", api.StatusOf(code), code)
		example := member(t, member(t, examples, string(code)), "value")
		if detail := api.DetailOf(code); member(t, example, "detail").Value != detail {
			fmt.Fprintf(&b, "%s\n\n", detail)
		}
		fmt.Fprintf(&b, "```json Problem\n%s\n```\n\n", ordered(t, example, "  "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func member(t *testing.T, of *yaml.Node, name string) *yaml.Node {
	t.Helper()
	for i := 0; i+1 < len(of.Content); i += 2 {
		if of.Content[i].Value == name {
			return of.Content[i+1]
		}
	}
	require.FailNow(t, "openapi.yaml has no "+name)
	return nil
}

// ordered writes YAML as JSON, its members in their order: the outermost each on
// a line of its own.
func ordered(t *testing.T, n *yaml.Node, indent string) string {
	t.Helper()
	join := func(open, end string, parts []string) string {
		if indent != "" && len(parts) > 0 {
			return open + "\n" + indent + strings.Join(parts, ",\n"+indent) + "\n" + end
		}
		return open + strings.Join(parts, ", ") + end
	}
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, fmt.Sprintf("%q: %s", n.Content[i].Value, ordered(t, n.Content[i+1], "")))
		}
		return join("{", "}", parts)
	case yaml.SequenceNode:
		for _, c := range n.Content {
			parts = append(parts, ordered(t, c, ""))
		}
		return join("[", "]", parts)
	default:
		var v any
		require.NoError(t, n.Decode(&v))
		if _, isTime := v.(fmt.Stringer); isTime {
			v = n.Value
		}
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(v))
		return strings.TrimSpace(b.String())
	}
}
