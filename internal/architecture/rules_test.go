package architecture_test

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// layer is one row of the map: a package and which of ours it may import.
// Paths are written without the module and without "internal/".
type layer struct {
	pkg string
	may string
}

// layers is the map, from the leaves to the program. A package that does not
// exist yet does no harm; one that has no row fails the test, so that its place
// is decided when it is made. Packages named …test serve tests and may import
// what they like.
func layers() []layer {
	const (
		leaves  = "strictjson ledger loss wire seal "
		records = "audit tenants connections "
		rules   = "identity dedupe connectors "
	)
	return []layer{
		{pkg: "architecture"}, // these tests, and nothing else
		{pkg: "."},            // openapi.yaml, embedded where it lies

		// Leaves know nothing of the rest.
		{pkg: "strictjson"},
		{pkg: "ledger"},
		{pkg: "loss", may: "ledger"},
		{pkg: "bootclock"},
		{pkg: "torturetest/inside"}, // compiled into the gateways that the fault rig breaks
		{pkg: "wire"},
		{pkg: "seal"},
		{pkg: "telemetry"},
		{pkg: "sandbox"},

		// What makes two writes one, and what a vendor is told. Neither knows the
		// other, nor who asks, nor that it is being recorded.
		{pkg: "identity", may: "strictjson"},
		{pkg: "dedupe", may: "identity ledger"},
		{pkg: "connectors", may: "strictjson"},
		{pkg: "connectors/manifest", may: "connectors strictjson"},
		{pkg: "connectors/builtin", may: "connectors connectors/manifest"},
		// An author's tools send over the wire as the gateway does.
		{pkg: "connectors/workbench", may: "connectors connectors/manifest wire"},

		// Records; changes to tenants and connections carry their audit rows.
		{pkg: "audit", may: "ledger seal strictjson"},
		{pkg: "archive", may: "ledger strictjson audit"},
		{pkg: "archive/bucket", may: "archive"},
		{pkg: "trail", may: "ledger audit archive"},
		{pkg: "tenants", may: "ledger seal strictjson audit"},
		{pkg: "connections", may: "ledger seal strictjson audit"},

		// What rows add up to.
		{pkg: "usage", may: "ledger audit"},

		// Which tenants the clock may ask something of.
		{pkg: "due", may: "ledger tenants"},

		// How much each tenant may use.
		{pkg: "limits", may: "ledger tenants"},

		{pkg: "oauth", may: "audit connections connectors wire"},
		{pkg: "catalog", may: "ledger audit connectors"},

		// Drivers serve the ledger's contract, and see nothing of what is stored.
		{pkg: "pebblestore", may: "ledger bootclock"},
		{pkg: "redisstore", may: "ledger loss bootclock"},

		// The one path of a write, the front, the program.
		{pkg: "actions", may: leaves + records + rules + "limits"},
		{pkg: "api", may: leaves + records + rules + "actions archive limits usage trail ."},
		{pkg: "doctor", may: "sandbox"}, // a client, too
		{pkg: "examples/go"},            // a client, which knows only what is public
		{pkg: "mcp", may: "strictjson"}, // beside api, which it speaks to as a client does
		{pkg: "cmd/gateway", may: leaves + records + rules +
			"actions due limits usage archive archive/bucket trail oauth api mcp catalog connectors/manifest connectors/builtin connectors/workbench pebblestore redisstore telemetry sandbox doctor bootclock"},
	}
}

// home says which of our packages may import a module of others directly.
type home struct {
	module string
	only   string
}

// homes keeps each heavy or far-reaching module replaceable: one place to
// change when it has to go.
func homes() []home {
	return []home{
		{module: "github.com/labstack/echo/v4", only: "api cmd/gateway"},
		{module: "github.com/redis/go-redis/v9", only: "redisstore"},
		{module: "github.com/cockroachdb/pebble/v2", only: "pebblestore"},
		{module: "cel.dev/cel-go", only: "connectors/manifest"},
		{module: "github.com/minio/minio-go/v7", only: "archive/bucket"},
		{module: "github.com/spf13/cobra", only: "cmd/gateway"},
		{module: "github.com/modelcontextprotocol/go-sdk", only: "mcp"},
		{module: "go.opentelemetry.io/otel/sdk", only: "telemetry"},
	}
}

// testOnly lists what may not be linked into the binary, at any depth.
func testOnly() []string {
	return []string{
		"github.com/stretchr/testify",
		"github.com/google/go-cmp",
		"go.uber.org/goleak",
		"pgregory.net/rapid",
		"github.com/anishathalye/porcupine",
		"github.com/gowebpki/jcs", // the oracle of strictjson
		"net/http/httptest",
		"github.com/prometheus/client_golang/prometheus/testutil",
	}
}

// sidewaysImports names every import among ours that no row allows.
func sidewaysImports(rows []layer, g graph) []string {
	may := map[string][]string{}
	for _, row := range rows {
		may[row.pkg] = strings.Fields(row.may)
	}
	var found []string
	for _, from := range g.ours() {
		name, _ := ourName(from)
		if servesTests(from) {
			continue
		}
		allowed, ok := may[name]
		if !ok {
			found = append(found, name+" has no row in layers(): decide which of ours it may import")
			continue
		}
		for _, to := range g[from] {
			if target, ok := ourName(to); ok && !slices.Contains(allowed, target) {
				found = append(found, fmt.Sprintf("%s must not import %s", name, target))
			}
		}
	}
	return found
}

// strayedModules names every direct import of a module outside its home.
func strayedModules(rows []home, g graph) []string {
	var found []string
	for _, from := range g.ours() {
		name, _ := ourName(from)
		if servesTests(from) {
			continue
		}
		for _, row := range rows {
			if slices.Contains(strings.Fields(row.only), name) {
				continue
			}
			for _, to := range g[from] {
				if within(row.module, to) {
					found = append(found, fmt.Sprintf("%s must not import %s: only %s may", name, to, row.only))
				}
			}
		}
	}
	return found
}

// testCodeIn names everything made for tests that the program links.
func testCodeIn(program string, g graph) []string {
	var found []string
	for _, linked := range slices.Sorted(maps.Keys(g.reach(program))) {
		_, our := ourName(linked)
		foreign := slices.ContainsFunc(testOnly(), func(m string) bool { return within(m, linked) })
		if foreign || our && servesTests(linked) {
			found = append(found, linked+" is for tests and is linked into the binary")
		}
	}
	return found
}

// vagueNames names packages that say nothing of what they own.
func vagueNames(g graph) []string {
	vague := []string{"util", "utils", "common", "models", "helpers", "misc", "shared", "base", "types"}
	var found []string
	for _, p := range g.ours() {
		if slices.Contains(vague, path.Base(p)) {
			found = append(found, p+" is named after nothing it owns")
		}
	}
	return found
}

// ourName shortens the path of one of our packages, and says whether it is one.
func ourName(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	name, ok := strings.CutPrefix(importPath, module+"/")
	return strings.TrimPrefix(name, "internal/"), ok
}

func servesTests(importPath string) bool { return strings.HasSuffix(importPath, "test") }

func within(module, importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}
