# A static binary on an empty image, with the list of what is in it (CycloneDX).
# The default tag is the newest patch release of the Go version in go.mod; pin it
# by digest with --build-arg BUILDER=... `make image` builds this file, and
# `make image-test` runs what came of it as a cluster would.
ARG BUILDER=golang:1.26

FROM ${BUILDER} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What `gateway version`, holdfast_build_info and traces call this build.
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X main.release=${VERSION}" -o /out/gateway ./cmd/gateway \
    && mkdir /out/data
# Made from the binary itself: what was linked, not what go.mod allows; without the
# hour it was made, so that the same source gives the same layer.
ARG CYCLONEDX=v1.10.0
RUN go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@${CYCLONEDX} \
    bin -json -std -noserial -version "${VERSION:-unknown}" -output /out/sbom.cdx.json /out/gateway \
    && sed -i '/^    "timestamp": /d' /out/sbom.cdx.json

FROM scratch
ARG VERSION=
LABEL org.opencontainers.image.title="Holdfast" \
      org.opencontainers.image.description="A write gateway for AI agents' tool calls" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/sbom.cdx.json /sbom.cdx.json
COPY --from=build /out/gateway /gateway
COPY --from=build --chown=65532:65532 /out/data /data
# Inside a container only the published ports can be reached, so listen on all
# addresses; keep 9090, the admin listener, off the public network.
ENV GATEWAY_LISTEN=0.0.0.0:8080 \
    GATEWAY_ADMIN_LISTEN=0.0.0.0:9090 \
    GATEWAY_STORE=embedded:/data
USER 65532:65532
WORKDIR /data
VOLUME /data
EXPOSE 8080 9090
# Kubernetes asks /healthz and /readyz on 9090 itself and ignores this.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 CMD ["/gateway", "healthcheck"]
ENTRYPOINT ["/gateway"]
CMD ["serve"]
