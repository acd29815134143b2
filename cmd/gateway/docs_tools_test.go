package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/api/apitest"
	"holdfast.dev/gateway/internal/docstest"
	"holdfast.dev/gateway/internal/sandbox"
)

// toolSchema is what a tool definition in examples/tools says of its arguments.
func toolSchema(file string) (json.RawMessage, error) {
	content, err := os.ReadFile(filepath.Join(root, "examples", "tools", file))
	if err != nil {
		return nil, err
	}
	// The two ways to define a tool, and nothing else.
	var tool struct {
		Type     string `json:"type"`
		Function *struct {
			Name, Description string
			Parameters        json.RawMessage
		} `json:"function"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	}
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&tool); err != nil {
		return nil, err
	}
	switch {
	case tool.Function != nil && tool.Type == "function" && tool.Name == "" && tool.Function.Name == toolName && tool.Function.Description != "":
		return tool.Function.Parameters, nil
	case tool.Function == nil && tool.Type == "" && tool.Name == toolName && tool.Description != "" && len(tool.InputSchema) > 0:
		return tool.InputSchema, nil
	}
	return nil, errors.New("this defines no tool")
}

const toolName = "holdfast_do"

// checkToolCall holds a model's call against the tool it was offered and against
// what POST /v1/do takes, and returns the request.
func checkToolCall(b docstest.Block) (request []byte, err error) {
	file := "anthropic.json"
	var call struct {
		ID, Type, Name string
		Input          json.RawMessage
		Function       *struct{ Name, Arguments string }
	}
	if err := json.Unmarshal([]byte(b.Text), &call); err != nil {
		return nil, err
	}
	if request = call.Input; call.Function != nil {
		file, request = "openai.json", []byte(call.Function.Arguments)
		call.Name = call.Function.Name
	}
	if call.Name != toolName {
		return nil, fmt.Errorf("there is no tool %q", call.Name)
	}
	text, err := toolSchema(file)
	if err != nil {
		return nil, err
	}
	schema, err := compileSchema(text)
	if err != nil {
		return nil, err
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	return request, errors.Join(schema.Validate(instance), apitest.CheckSchema("DoRequest", request))
}

func compileSchema(text []byte) (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:tool", document); err != nil {
		return nil, err
	}
	return c.Compile("urn:tool")
}

// TestToolDefinitions: both definitions say the same, and what they let a model
// say is what the API takes; the members left out are a person's.
func TestToolDefinitions(t *testing.T) {
	openai, err := toolSchema("openai.json")
	require.NoError(t, err)
	anthropic, err := toolSchema("anthropic.json")
	require.NoError(t, err)
	require.JSONEq(t, string(openai), string(anthropic))
	schema, err := compileSchema(openai)
	require.NoError(t, err)
	for request, good := range map[string]bool{
		`{"connection":"c","action":"a"}`:                                                      true,
		`{"connection":"c","action":"a","body":{}}`:                                            true,
		`{"connection":"c","action":"a","body":{"x":[1,"2",null]}}`:                            true,
		`{"connection":"c","action":"a","idempotency_key":"order 7"}`:                          true,
		`{"connection":"c","action":"a","idempotency_key":"` + fmt.Sprintf("%0255d", 0) + `"}`: true,
		`{}`:                             false,
		`{"connection":"c"}`:             false,
		`{"connection":"","action":"a"}`: false,
		`{"connection":"c","action":""}`: false,
		`{"connection":"c","action":"a","body":null}`:                                          false,
		`{"connection":"c","action":"a","body":"x"}`:                                           false,
		`{"connection":"c","action":"a","idempotency_key":""}`:                                 false,
		`{"connection":"c","action":"a","idempotency_key":" x"}`:                               false,
		`{"connection":"c","action":"a","idempotency_key":"é"}`:                                false,
		`{"connection":"c","action":"a","idempotency_key":"` + fmt.Sprintf("%0256d", 0) + `"}`: false,
		`{"connection":"c","action":"a","what":1}`:                                             false,
	} {
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(request)))
		require.NoError(t, err)
		require.Equal(t, good, schema.Validate(instance) == nil, "the tool: %s", request)
		require.Equal(t, good, apitest.CheckSchema("DoRequest", []byte(request)) == nil, "the API: %s", request)
	}
	var properties struct{ Properties map[string]json.RawMessage }
	require.NoError(t, json.Unmarshal(openai, &properties))
	require.NotContains(t, properties.Properties, "retry_refused")
	require.NotContains(t, properties.Properties, "allow_duplicate")
}

// TestToolCallsAreMade: the calls that docs/agents.md shows are sent to a gateway
// as the page says, and are one write.
func TestToolCallsAreMade(t *testing.T) {
	app, _ := boot(t, embeddedConfig(t))
	vendor := sandbox.New(sandbox.Options{})
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	a := newAgent(t, app.URL())
	a.must(201, "PUT", "/v1/connections/billing", map[string]any{
		"connector": "sandbox@1", "base_url": server.URL, "credentials": map[string]string{"token": "any"},
	})
	calls := 0
	for _, page := range docPages(t) {
		for _, b := range page.Blocks {
			if b.Word("openai-call") || b.Word("anthropic-call") {
				request, err := checkToolCall(b)
				require.NoError(t, err, b.Place())
				r := a.call("POST", "/v1/do", string(request)).is(http.StatusOK, "succeeded")
				require.Equal(t, fmt.Sprint(calls > 0), r.text("replayed"))
				calls++
			}
		}
	}
	require.Equal(t, 2, calls)
	require.EqualValues(t, 1, vendor.Count().Committed)
}
