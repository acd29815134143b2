package workbench

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed starter/connector.yaml
var starterManifest string

//go:embed starter/fixtures.yaml
var starterFixtures string

var connectorName = regexp.MustCompile(`^[a-z][a-z0-9-]{1,40}$`)

// ErrName means a connector cannot be called that.
var ErrName = errors.New("a connector's name is 2 to 41 lower-case letters, digits and hyphens, and begins with a letter")

// Start writes a commented manifest and its fixtures to <dir>/<name>/1.0.0, and
// returns that folder. It overwrites nothing.
func Start(dir, name string) (folder string, err error) {
	if !connectorName.MatchString(name) {
		return "", ErrName
	}
	folder = filepath.Join(dir, name, "1.0.0")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("start connector: %w", err)
	}
	for file, text := range map[string]string{connectorFile: starterManifest, "fixtures.yaml": starterFixtures} {
		if err := writeNew(filepath.Join(folder, file), strings.ReplaceAll(text, "NAME", name)); err != nil {
			return "", fmt.Errorf("start connector: %w", err)
		}
	}
	return folder, nil
}

func writeNew(file, text string) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(text)
	return err
}
