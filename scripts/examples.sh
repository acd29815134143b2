#!/usr/bin/env bash
# examples.sh GO-TEST-FLAG...: compiles the client in TypeScript (examples/typescript)
# and plays it against the gateway, as TestExamples does with the others. The compiler
# comes from npm, into .bin/.
set -euo pipefail

typescript_version=5.9.3
typescript=.bin/typescript-$typescript_version

# shellcheck source=scripts/npm.sh
. scripts/npm.sh
node=$(find_node)
[ -d "$typescript" ] || fetch "$typescript" "typescript@$typescript_version"

"$node" "$typescript/node_modules/typescript/bin/tsc" --strict --noUnusedLocals --noUnusedParameters \
	--erasableSyntaxOnly --target es2022 --lib es2022,dom --module commonjs \
	--outDir .bin/examples examples/typescript/do.ts

# The test runs in its package's folder, so paths are given from the root.
EXAMPLES_NODE=$(realpath "$(command -v "$node")")
export EXAMPLES_NODE EXAMPLES_TYPESCRIPT=$PWD/.bin/examples/do.js
exec go test "$@" -tags=examples -run='^TestExampleInTypeScript$' -count=1 ./cmd/gateway
