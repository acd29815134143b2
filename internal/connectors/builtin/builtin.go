// Package builtin holds the manifests of the vendors Holdfast ships with, one
// file each, embedded as they are. They are data: whatever a manifest can say
// is the business of package manifest, and an operator's own connectors lie in a
// folder that the Registry reads.
package builtin

import (
	"embed"
	"fmt"

	"holdfast.dev/gateway/internal/connectors"
)

//go:embed *.yaml
var files embed.FS

// Manifests returns the embedded manifests, by file name.
func Manifests() ([]connectors.Source, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list built-in connectors: %w", err)
	}
	var list []connectors.Source
	for _, entry := range entries {
		raw, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read built-in connector: %w", err)
		}
		list = append(list, connectors.Source{File: "builtin/" + entry.Name(), Manifest: raw})
	}
	return list, nil
}
