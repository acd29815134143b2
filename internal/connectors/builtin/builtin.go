// Package builtin holds the manifests of the vendors Holdfast ships with, one
// file each, embedded as they are. They are data: whatever a manifest can say
// is the business of package manifest, and an operator's own connectors lie in a
// folder that the Registry reads.
package builtin

import (
	"embed"
	"fmt"
	"strings"

	"holdfast.dev/gateway/internal/connectors"
)

//go:embed *.yaml
var files embed.FS

// fixtures is how the name of a file of fixtures ends: stripe.fixtures.yaml lies
// beside stripe.yaml.
const fixtures = ".fixtures.yaml"

// Manifests returns the embedded manifests, by file name.
func Manifests() ([]connectors.Source, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list built-in connectors: %w", err)
	}
	var list []connectors.Source
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), fixtures) {
			continue
		}
		raw, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read built-in connector: %w", err)
		}
		list = append(list, connectors.Source{File: "builtin/" + entry.Name(), Manifest: raw})
	}
	return list, nil
}

// Fixtures returns the embedded fixtures of a connector, by its name.
func Fixtures(name string) ([]byte, error) {
	raw, err := files.ReadFile(name + fixtures)
	if err != nil {
		return nil, fmt.Errorf("read fixtures of built-in connector: %w", err)
	}
	return raw, nil
}
