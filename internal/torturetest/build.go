package torturetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Edit is one change to a file of the module, such as one that takes a
// protection out of it.
type Edit struct {
	File     string // from the module's root, with slashes
	Old, New string // Old stands in the file exactly once
}

// Build makes the gateway as it ships, but for the edits and for its wall clock,
// which the rig can set (see package inside). It returns the program. Root is the
// module's folder, dir one for what is built.
func Build(root, dir string, edits ...Edit) (program string, err error) {
	texts, err := edited(root, edits)
	if err != nil {
		return "", err
	}
	if err := giveClock(root, texts); err != nil {
		return "", err
	}
	overlay, err := writeOverlay(root, dir, texts)
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "gateway")
	cmd := exec.Command("go", "build", "-o", program, "-overlay", overlay, "./cmd/gateway")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gateway: %w: %s", err, out)
	}
	return program, nil
}

// Overlay writes the edited files into dir, and what tells the go command to read
// them in place of the module's own.
func Overlay(root, dir string, edits ...Edit) (string, error) {
	texts, err := edited(root, edits)
	if err != nil {
		return "", err
	}
	return writeOverlay(root, dir, texts)
}

// edited returns the new texts by the name of the file.
func edited(root string, edits []Edit) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range edits {
		text, ok := texts[e.File]
		if !ok {
			raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File)))
			if err != nil {
				return nil, fmt.Errorf("edit: %w", err)
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			return nil, fmt.Errorf("edit %s: %q stands there %d times and not once: mend the edit", e.File, e.Old, n)
		}
		texts[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return texts, nil
}

var (
	asksTime = regexp.MustCompile(`\btime\.Now\b`)
	clause   = regexp.MustCompile(`(?m)^package \w+$`)
)

// giveClock lets every file of the program ask package inside for the time.
// Packages for tests are left alone, and so is the clock that nobody sets.
func giveClock(root string, texts map[string]string) error {
	found := false
	for _, top := range []string{"cmd/gateway", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (strings.HasSuffix(d.Name(), "test") || d.Name() == "bootclock"):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			name = filepath.ToSlash(name)
			text, ok := texts[name]
			if !ok {
				raw, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text = string(raw)
			}
			if !asksTime.MatchString(text) {
				return nil
			}
			found = true
			text = asksTime.ReplaceAllString(text, "inside.Now")
			at := clause.FindStringIndex(text)[1]
			texts[name] = text[:at] + "\n\nimport \"holdfast.dev/gateway/internal/torturetest/inside\"\n" +
				text[at:] + "\nvar _ time.Time // the import is used\n"
			return nil
		})
		if err != nil {
			return fmt.Errorf("give the gateway a clock: %w", err)
		}
	}
	if !found {
		return errors.New("give the gateway a clock: it asks for no time")
	}
	return nil
}

func writeOverlay(root, dir string, texts map[string]string) (string, error) {
	replace := map[string]string{}
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		changed := filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(name)))
		if err := os.WriteFile(changed, []byte(texts[name]), 0o600); err != nil {
			return "", fmt.Errorf("write overlay: %w", err)
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = changed
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, raw, 0o600); err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	return overlay, nil
}
