#!/usr/bin/env bash
# mcp-clients.sh GO-TEST-FLAG...: lets real MCP clients speak to the real gateway: the
# Inspector's command line, the official conformance suite, and the client of the
# TypeScript SDK. They come from npm, into .bin/; the tests (cmd/gateway/
# mcpclients_test.go) start them, and fail if anything here is missing.
set -euo pipefail

inspector_version=2.12.0
conformance_version=0.2.0-alpha.12 # the first versions that know 2026-07-28
sdk_version=1.32.2

inspector=.bin/mcp-inspector-$inspector_version
conformance=.bin/mcp-conformance-$conformance_version
sdk=.bin/mcp-sdk-$sdk_version

# shellcheck source=scripts/npm.sh
. scripts/npm.sh
node=$(find_node 24) # the suite ends with an error on Node 20
[ -d "$inspector" ] || fetch "$inspector" "@modelcontextprotocol/inspector@$inspector_version"
[ -d "$conformance" ] || fetch "$conformance" "@modelcontextprotocol/conformance@$conformance_version"
[ -d "$sdk" ] || fetch "$sdk" "@modelcontextprotocol/sdk@$sdk_version"

# The test runs in its package's folder, so paths are given from the root.
node=$(command -v "$node")
MCP_NODE=$(realpath "$node")
export MCP_NODE
export MCP_INSPECTOR=$PWD/$inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js
export MCP_CONFORMANCE=$PWD/$conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js
export MCP_SDK=$PWD/$sdk/node_modules/@modelcontextprotocol/sdk
exec go test "$@" -tags=mcpclients -run='^TestMCPClient' -count=1 -v ./cmd/gateway
