#!/usr/bin/env bash
# kubeschemas.sh VERSION: writes deploy/charttest/schemas anew from the OpenAPI
# description in the module k8s.io/kubernetes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf 'module schemas\n' >"$work/go.mod"
folder=$(cd "$work" && go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
go run scripts/kubeschemas.go "$folder/api/openapi-spec/swagger.json" deploy/charttest/schemas
