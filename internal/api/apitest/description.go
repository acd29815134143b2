package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	gateway "holdfast.dev/gateway"
)

// description is openapi.yaml, read once: as a router, and as a document whose
// schemas are compiled when they are first needed.
type description struct {
	router routers.Router
	tree   map[string]any

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

// load reads openapi.yaml the first time it is called.
var load = sync.OnceValues(func() (*description, error) {
	doc, err := openapi3.NewLoader().LoadFromData(gateway.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	// A test server has an address of its own.
	doc.Servers = nil
	for _, item := range doc.Paths.Map() {
		item.Servers = nil
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("route openapi.yaml: %w", err)
	}
	tree, err := readTree()
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	strict(tree)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020) // the dialect of OpenAPI 3.1
	compiler.AssertFormat()
	if err := compiler.AddResource(resource, tree); err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	return &description{router: router, tree: tree, compiler: compiler, compiled: map[string]*jsonschema.Schema{}}, nil
})

const resource = "urn:holdfast:openapi"

func readTree() (map[string]any, error) {
	var raw any
	if err := yaml.Unmarshal(gateway.OpenAPI(), &raw); err != nil {
		return nil, err
	}
	text, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return tree, dec.Decode(&tree)
}

// strict closes every object that lists its members. The description leaves
// them open, so that members can be added; a test must see those that were
// forgotten in it.
func strict(node any) {
	switch n := node.(type) {
	case map[string]any:
		_, lists := n["properties"]
		_, closed := n["additionalProperties"]
		if n["type"] == "object" && lists && !closed {
			n["additionalProperties"] = false
		}
		for _, child := range n {
			strict(child)
		}
	case []any:
		for _, child := range n {
			strict(child)
		}
	}
}

// response is the place of a response, as a JSON Pointer.
func (d *description) response(path, method string, status int) string {
	place := "/paths/" + escape(path) + "/" + strings.ToLower(method) + "/responses/" + strconv.Itoa(status)
	if ref, ok := d.at(place)["$ref"].(string); ok {
		return strings.TrimPrefix(ref, "#")
	}
	return place
}

// at returns the object at a pointer, nil if there is none.
func (d *description) at(pointer string) map[string]any {
	node := d.tree
	for segment := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		node, _ = node[unescape(segment)].(map[string]any)
	}
	return node
}

func (d *description) validate(pointer string, body []byte) error {
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("body is not JSON: %w", err)
	}
	schema, err := d.schema(pointer)
	if err != nil {
		return fmt.Errorf("compile schema: %w", err)
	}
	return schema.Validate(instance)
}

func (d *description) schema(pointer string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.compiled[pointer]; ok {
		return s, nil
	}
	s, err := d.compiler.Compile(resource + "#" + percent(pointer))
	if err == nil {
		d.compiled[pointer] = s
	}
	return s, err
}

func escape(segment string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(segment)
}

func unescape(segment string) string {
	return strings.NewReplacer("~1", "/", "~0", "~").Replace(segment)
}

// percent writes a pointer as the fragment of a URI.
func percent(pointer string) string {
	return strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D", "+", "%2B").Replace(pointer)
}
