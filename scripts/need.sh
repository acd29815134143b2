#!/usr/bin/env bash
# need.sh COMMAND PACKAGE...: makes sure COMMAND is there, from the system's
# packages if it is missing and this user may install them; else says what to do.
set -euo pipefail

command=$1
shift
if command -v "$command" >/dev/null; then
	exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
	as_root=(sudo -n)
fi
if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
	echo "$command is missing: installing $* with apt-get" >&2
	"${as_root[@]}" apt-get -qq update
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get -qq install -y --no-install-recommends "$@" </dev/null >&2
	hash -r
fi
if ! command -v "$command" >/dev/null; then
	echo "$command is needed and was not found." >&2
	echo "Install it with your system's package manager and run this again" >&2
	echo "(Debian, Ubuntu: apt-get install $*; macOS: brew install ${*%-server})." >&2
	exit 1
fi
