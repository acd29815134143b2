# A static binary on an empty image. The default tag is the newest patch release
# of the Go version in go.mod; pin it by digest with --build-arg BUILDER=...
ARG BUILDER=golang:1.26

FROM ${BUILDER} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/gateway ./cmd/gateway \
    && cp "$(go env GOROOT)/lib/time/zoneinfo.zip" /out/zoneinfo.zip \
    && mkdir /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/zoneinfo.zip /zoneinfo.zip
COPY --from=build /out/gateway /gateway
COPY --from=build --chown=65532:65532 /out/data /data
# Inside a container only the published ports can be reached, so listen on all
# addresses; keep 9090, the admin listener, off the public network.
ENV ZONEINFO=/zoneinfo.zip \
    GATEWAY_LISTEN=0.0.0.0:8080 \
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
