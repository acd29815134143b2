#!/usr/bin/env bash
# image.sh: builds the container image from the Dockerfile with buildah, which
# needs no daemon and no root.
#
#   IMAGE    its name (holdfast:dev)
#   VERSION  what the build calls itself (what git says of this tree)
#   BUILDER  the image with Go that builds it, such as golang:1.26 or one by digest.
#            Without it one is made from the Go on this machine, and nothing is
#            pulled from anywhere.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

image=${IMAGE:-holdfast:dev}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}

scripts/need.sh buildah buildah
build=(buildah build --isolation chroot --format docker --timestamp 0)

if [ -z "${BUILDER:-}" ]; then
	scripts/need.sh busybox busybox-static
	BUILDER=localhost/holdfast-builder:$(go env GOVERSION)
	if ! buildah inspect --type image "$BUILDER" >/dev/null 2>&1; then
		echo "making $BUILDER from $(go env GOROOT)" >&2
		folder=$(mktemp -d)
		trap 'rm -rf "$folder"' EXIT
		mkdir -p "$folder/root/bin"
		cp "$(command -v busybox)" "$folder/root/bin/busybox"
		for applet in $(busybox --list); do
			[ "$applet" = busybox ] || ln -s busybox "$folder/root/bin/$applet"
		done
		cp /etc/ssl/certs/ca-certificates.crt "$folder/ca-certificates.crt"
		cat >"$folder/Dockerfile" <<-'END'
			FROM scratch
			COPY root/ /
			COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
			COPY --from=goroot . /usr/local/go
			ENV PATH=/usr/local/go/bin:/bin GOPATH=/go GOTOOLCHAIN=local HOME=/root TMPDIR=/tmp
			RUN ["/bin/mkdir", "-p", "/tmp", "/go", "/root"]
		END
		buildah build --isolation chroot --pull-never --build-context "goroot=$(go env GOROOT)" -t "$BUILDER" "$folder" >&2
	fi
	# Modules and compiled packages of this machine are used, so that a build
	# without a network works and a second one is quick.
	go mod download
	build+=(--pull-never
		-v "$(go env GOMODCACHE):/go/pkg/mod"
		-v "$(go env GOCACHE):/root/.cache/go-build")
fi

"${build[@]}" --build-arg "BUILDER=$BUILDER" --build-arg "VERSION=$version" -t "$image" .
