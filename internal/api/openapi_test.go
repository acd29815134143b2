package api_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	root "holdfast.dev/gateway"
	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/audit"
)

func description(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(root.OpenAPI())
	require.NoError(t, err)
	return doc
}

// It is sound OpenAPI 3.1.
func TestDescriptionIsSound(t *testing.T) {
	doc := description(t)
	// The linter holds the examples against their schemas; here it would take longer
	// than all the rest.
	require.NoError(t, doc.Validate(t.Context(), openapi3.DisableExamplesValidation()))
	require.True(t, doc.IsOpenAPI31OrLater())
}

func TestRoutesAndDescriptionAreTheSame(t *testing.T) {
	param := regexp.MustCompile(`:(\w+)`)
	var served []string
	public, admin := newGateway(t).server.Routes()
	for _, r := range append(public, admin...) {
		served = append(served, r[0]+" "+param.ReplaceAllString(r[1], "{$1}"))
	}
	var described []string
	for path, item := range description(t).Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	require.ElementsMatch(t, served, described)
}

// The calls of the admin listener, and only they, name its address.
func TestAdminCallsNameTheirListener(t *testing.T) {
	_, admin := newGateway(t).server.Routes()
	for path, item := range description(t).Paths.Map() {
		own := false
		for _, r := range admin {
			own = own || r[1] == path
		}
		require.Equal(t, own, len(item.Servers) > 0, path)
	}
}

func TestCodesAndDescriptionAreTheSame(t *testing.T) {
	doc := description(t)
	var named []actions.Code
	for _, code := range doc.Components.Schemas["Code"].Value.Enum {
		named = append(named, actions.Code(code.(string)))
	}
	require.ElementsMatch(t, api.Codes(), named)

	// Each code has an example, the example says what the table says, and some
	// call has it among the answers of its status.
	shown := map[actions.Code]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			for status, response := range op.Responses.Map() {
				media := response.Value.Content["application/problem+json"]
				if media == nil {
					continue
				}
				require.NotEmpty(t, media.Examples, "%s %s %s", method, path, status)
				for name, example := range media.Examples {
					value := example.Value.Value.(map[string]any)
					code := actions.Code(value["code"].(string))
					require.Equal(t, string(code), name, "an example is named after its code")
					require.EqualValues(t, api.StatusOf(code), value["status"], code)
					require.Equal(t, status, number(api.StatusOf(code)), code)
					require.Equal(t, api.TitleOf(code), value["title"], code)
					require.Equal(t, string(api.NextOf(code)), value["next"], code)
					require.Equal(t, "/problems/"+string(code), value["type"], code)
					shown[code] = true
				}
			}
		}
	}
	for _, code := range api.Codes() {
		require.True(t, shown[code], "%s stands in no answer of the description", code)
	}
}

func number(status int) string {
	return string([]byte{byte('0' + status/100), byte('0' + status/10%10), byte('0' + status%10)})
}

func TestEventsAndDescriptionAreTheSame(t *testing.T) {
	var named []audit.Event
	for _, e := range description(t).Components.Schemas["Event"].Value.Enum {
		named = append(named, audit.Event(e.(string)))
	}
	require.Equal(t, audit.Events(), named)
}

// Every call but the public ones needs a key, and says what can go wrong.
func TestEveryCallSaysWhatCanGoWrong(t *testing.T) {
	for path, item := range description(t).Paths.Map() {
		for method, op := range item.Operations() {
			name := method + " " + path
			require.NotNil(t, op.Responses.Status(500), name)
			if op.Security != nil && len(*op.Security) == 0 {
				continue
			}
			require.NotNil(t, op.Responses.Status(401), name)
			require.NotNil(t, op.Responses.Status(403), name)
			require.NotNil(t, op.Responses.Status(503), name)
			if strings.Contains(path, "{") && method != "PUT" {
				require.NotNil(t, op.Responses.Status(404), name)
			}
			if op.RequestBody != nil {
				for _, status := range []int{400, 413, 415} {
					require.NotNil(t, op.Responses.Status(status), "%s %d", name, status)
				}
			}
			if len(op.Parameters) > 0 && method == "GET" {
				require.NotNil(t, op.Responses.Status(400), name)
			}
		}
	}
}
