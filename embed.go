// Package gateway holds the description of Holdfast's HTTP API where readers
// look for it, at the root, and nothing else. What it describes is package api.
package gateway

import _ "embed" // for openapi.yaml

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI returns the API's description (OpenAPI 3.1, YAML). Callers must not
// change it.
func OpenAPI() []byte { return openAPI }
