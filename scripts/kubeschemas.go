//go:build ignore

// Kubeschemas writes one strict JSON schema for each kind that the chart uses, out
// of the OpenAPI description that Kubernetes publishes (api/openapi-spec/swagger.json
// in the module k8s.io/kubernetes):
//
//	go run scripts/kubeschemas.go SWAGGER FOLDER
//
// A schema holds what its kind refers to, refuses members it does not know, and
// has no descriptions. deploy/charttest/schemas/README.md says whose work they are.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// kinds are what the chart renders, by the name of their definition.
var kinds = []string{
	"io.k8s.api.apps.v1.Deployment", "io.k8s.api.apps.v1.StatefulSet",
	"io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler", "io.k8s.api.batch.v1.Job",
	"io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.Service",
	"io.k8s.api.networking.v1.NetworkPolicy", "io.k8s.api.policy.v1.PodDisruptionBudget",
}

const prefix = "#/definitions/"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kubeschemas SWAGGER FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "kubeschemas:", err)
		os.Exit(1)
	}
}

func run(swagger, folder string) error {
	raw, err := os.ReadFile(swagger)
	if err != nil {
		return err
	}
	var all struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	for _, kind := range kinds {
		definition, ok := all.Definitions[kind]
		if !ok {
			return fmt.Errorf("no definition %s", kind)
		}
		used := map[string]any{}
		root := trim(definition, all.Definitions, used).(map[string]any)
		identify(root, definition)
		root["$schema"] = "http://json-schema.org/draft-07/schema#"
		root["definitions"] = used
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(root); err != nil {
			return err
		}
		name := strings.ToLower(kind[strings.LastIndexByte(kind, '.')+1:]) + ".json"
		if err := os.WriteFile(filepath.Join(folder, name), out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// identify fixes apiVersion and kind, which every object must name.
func identify(root, definition map[string]any) {
	gvk := definition["x-kubernetes-group-version-kind"].([]any)[0].(map[string]any)
	version := gvk["version"].(string)
	if group := gvk["group"].(string); group != "" {
		version = group + "/" + version
	}
	members := root["properties"].(map[string]any)
	members["apiVersion"] = map[string]any{"const": version}
	members["kind"] = map[string]any{"const": gvk["kind"]}
	required, _ := root["required"].([]any)
	root["required"] = append(required, "apiVersion", "kind", "metadata")
}

// trim copies a schema without what only people read, closes its objects, and
// collects the definitions it refers to.
func trim(node any, all map[string]map[string]any, used map[string]any) any {
	switch n := node.(type) {
	case []any:
		out := make([]any, len(n))
		for i := range n {
			out[i] = trim(n[i], all, used)
		}
		return out
	case map[string]any:
		if ref, ok := n["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, prefix)
			if _, seen := used[name]; !seen {
				used[name] = nil // so that a definition that refers to itself ends
				used[name] = definitionOf(name, all, used)
			}
			return map[string]any{"$ref": ref}
		}
		out := map[string]any{}
		for key, value := range n {
			switch {
			case key == "properties": // names of members, not of keywords
				members := map[string]any{}
				for name, schema := range value.(map[string]any) {
					members[name] = trim(schema, all, used)
				}
				out[key] = members
				if _, open := n["additionalProperties"]; !open {
					out["additionalProperties"] = false
				}
			case key == "description", key == "default", strings.HasPrefix(key, "x-"):
			case key == "format" && value == "int-or-string":
			default:
				out[key] = trim(value, all, used)
			}
		}
		return out
	default:
		return node
	}
}

// definitionOf is trim, but for the types whose JSON is not what the description says.
func definitionOf(name string, all map[string]map[string]any, used map[string]any) any {
	switch name {
	case "io.k8s.apimachinery.pkg.util.intstr.IntOrString", "io.k8s.apimachinery.pkg.api.resource.Quantity":
		return map[string]any{"type": []any{"string", "integer", "number"}}
	}
	return trim(all[name], all, used)
}
