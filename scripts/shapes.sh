#!/usr/bin/env bash
# shapes.sh GO-TEST-FLAG...: sends what the connectors for GitHub and Twilio write
# to Prism, which checks it against the OpenAPI documents that these vendors publish.
# Prism and the documents come from npm, into .bin/; the test (cmd/gateway/
# shapes_test.go) starts Prism itself and fails if anything here is missing.
set -euo pipefail

prism_version=5.14.2
github_version=23.0.2 # @octokit/openapi, by GitHub
twilio_version=0.7.0  # @twilio-alpha/mcp, by Twilio: it carries twilio-oai whole

prism=.bin/prism-$prism_version
github=.bin/openapi-github-$github_version.json
twilio=.bin/openapi-twilio-$twilio_version.json

# shellcheck source=scripts/npm.sh
. scripts/npm.sh
node=$(find_node)
[ -d "$prism" ] || fetch "$prism" "@stoplight/prism-cli@$prism_version"
[ -f "$github" ] || fetch_file "$github" "@octokit/openapi@$github_version" generated/api.github.com.json
[ -f "$twilio" ] || fetch_file "$twilio" "@twilio-alpha/mcp@$twilio_version" twilio-oai/spec/json/twilio_api_v2010.json

# The test runs in its package's folder, so paths are given from the root.
node=$(command -v "$node")
export SHAPES_NODE SHAPES_PRISM=$PWD/$prism/node_modules/@stoplight/prism-cli/dist/index.js
SHAPES_NODE=$(realpath "$node")
export SHAPES_GITHUB=$PWD/$github SHAPES_TWILIO=$PWD/$twilio
exec go test "$@" -tags=shapes -run='^TestShapes' -count=1 -v ./cmd/gateway
