#!/usr/bin/env bash
# lint-openapi.sh FILE: lints an OpenAPI description with Redocly's linter.
set -euo pipefail

file=$1
redocly_version=2.77.0
redocly=.bin/redocly-$redocly_version

# shellcheck source=scripts/npm.sh
. scripts/npm.sh
node=$(find_node)
[ -d "$redocly" ] || fetch "$redocly" "@redocly/cli@$redocly_version"

export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
exec "$node" "$redocly/node_modules/@redocly/cli/bin/cli.js" lint --config .ci/redocly.yaml "$file"
