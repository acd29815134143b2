# Every target here is what CI runs (.ci/run); `make help` lists them.
#
# Flags are Go's defaults plus -race for tests, so that the build cache is
# filled once and shared by build, vet, lint and demo.

FUZZTIME  ?= 30s
# Two packages at a time: some start servers of their own and measure time-outs.
TESTFLAGS ?= -race -shuffle=on -timeout=20m -p=2

GOLANGCI_VERSION := v2.15.0
GOLANGCI         := .bin/golangci-lint-$(GOLANGCI_VERSION)

# Checks requests against Stripe's own OpenAPI document. Its version stands in
# cmd/gateway/stripe_test.go too.
STRIPE_MOCK_VERSION := v0.203.0
STRIPE_MOCK         := .bin/stripe-mock-$(STRIPE_MOCK_VERSION)

# Check the Helm chart. The schemas in deploy/charttest/schemas are of this Kubernetes.
HELM_VERSION        := v3.22.0
HELM                := .bin/helm-$(HELM_VERSION)
KUBECONFORM_VERSION := v0.8.0
KUBECONFORM         := .bin/kubeconform-$(KUBECONFORM_VERSION)
KUBERNETES_VERSION  := v1.37.2

# A real S3 server for the tests of the audit's archive. Its version stands in
# internal/archive/buckettest, too.
VERSITYGW_VERSION := v1.8.0
VERSITYGW         := .bin/versitygw-$(VERSITYGW_VERSION)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Start the gateway with a sandbox vendor, play the story, keep serving
	go run ./cmd/gateway demo

.PHONY: build
build: ## Build the binary: .bin/gateway
	go build -o .bin/gateway ./cmd/gateway

.PHONY: test
test: redis-server faketime promtool clients $(STRIPE_MOCK) $(VERSITYGW) ## Run every test with the race detector
	go test $(TESTFLAGS) ./...

.PHONY: shapes
shapes: ## Hold what GitHub and Twilio are sent against their OpenAPI documents
	scripts/shapes.sh -race

.PHONY: examples
examples: ## Play the client in TypeScript against the gateway (test plays the others)
	scripts/examples.sh -race

.PHONY: chart
chart: $(HELM) $(KUBECONFORM) ## Render the Helm chart and hold it against golden files and Kubernetes' schemas
	HELM=$(HELM) KUBECONFORM=$(KUBECONFORM) scripts/chart.sh
	mkdir -p .bin/helm && ln -sf ../$(notdir $(HELM)) .bin/helm/helm
	PATH=$(CURDIR)/.bin/helm:$$PATH DOCS_MARK=chart go test -race -count=1 -run='^TestDocsMarked$$' ./cmd/gateway

.PHONY: chart-update
chart-update: $(HELM) $(KUBECONFORM) ## Write the chart's golden files anew
	HELM=$(HELM) KUBECONFORM=$(KUBECONFORM) scripts/chart.sh update

.PHONY: chart-schemas
chart-schemas: ## Write Kubernetes' schemas of the kinds in the chart anew
	scripts/kubeschemas.sh $(KUBERNETES_VERSION)

.PHONY: image
image: ## Build the container image (IMAGE=holdfast:dev, BUILDER= the image to build with)
	scripts/image.sh

.PHONY: image-test
image-test: image redis-server ## Run the image as a cluster would: read-only, no root, no capabilities
	scripts/need.sh podman podman
	scripts/need.sh runc runc
	go test -tags=image -run='^TestImage' -count=1 -v ./cmd/gateway

# `make test` plays a short form of it.
.PHONY: accept-audit
accept-audit: redis-server ## 10,000 calls with kills: audit, usage and the vendor must agree
	ACCEPT_CALLS=10000 go test -count=1 -timeout=20m -v -run='^TestAuditUsageAndVendorAgree$$' ./cmd/gateway

.PHONY: mcp-clients
mcp-clients: ## Let MCP clients from npm, and their conformance suite, speak to the gateway
	scripts/mcp-clients.sh -race

# SEEDS seeds on each store; with the defaults more than 200,000 calls of do.
SEEDS ?= 20
CALLS ?= 4000

.PHONY: torture
torture: redis-server faketime ## Break everything around real gateways under load, and compare what is left (SEEDS, CALLS)
	go test ./internal/torturetest -run '^TestTorture$$' -count=1 -v -timeout 80m -args -seeds=$(SEEDS) -calls=$(CALLS)

.PHONY: controls
controls: redis-server faketime ## Take one protection out at a time and see that the tests or the rig notice
	@scripts/need.sh strace strace
	go test -tags=controls ./internal/torturetest -run '^TestControls$$' -count=1 -v -timeout 40m

# Each release adds one before it raises a format, and at any other time it likes.
GOLDEN ?= format$(shell sed -n 's/^const formatVersion = //p' internal/redisstore/format.go)-$(shell git rev-parse --short HEAD)

.PHONY: golden
golden: redis-server ## Keep stores as this program leaves them, beside those of earlier releases (GOLDEN= their name)
	GOLDEN=$(GOLDEN) go test -tags=golden ./cmd/gateway -run='^TestMakeGolden$$' -count=1 -v

.PHONY: syscalls
syscalls: ## See by strace that a claim is synced before anything goes to the vendor
	@scripts/need.sh strace strace
	go test -tags=syscalls ./cmd/gateway -run='^TestNothingLeavesBeforeItIsSynced$$' -count=1 -v

.PHONY: cover
cover: redis-server faketime promtool clients $(STRIPE_MOCK) $(VERSITYGW) ## Run every test and print the coverage of each function
	go test $(TESTFLAGS) -coverpkg=./... -coverprofile=.bin/cover.out ./...
	go tool cover -func=.bin/cover.out

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s) each
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench-audit
bench-audit: ## Ask questions of an audit log of ten million rows (ten minutes, 5 GB of disk)
	go test ./internal/trail -run '^TestPagesOfALongLog$$' -v -count=1 -timeout=60m -args -rows=100000,1000000,10000000 -tries=100

# Medians of ROUNDS rounds of ROUND_TIME each; with fewer than 3 it only sees that
# everything works. WHICH is a regular expression for the names of contests. AGAINST
# is another build of the gateway: the two are held against each other, and no more.
# RECORDS are those that expire, and those in a store that is opened again; a million
# is the full form.
ROUNDS     ?= 3
ROUND_TIME ?= $(if $(filter 1 2,$(ROUNDS)),200ms,3s)
WHICH      ?=
RECORDS    ?= 100000
AGAINST    ?=

.PHONY: bench
bench: redis-server ## Measure against a reverse proxy, a JSON echo, a raw log, redis-benchmark (ROUNDS, ROUND_TIME, WHICH)
	go test ./internal/benchtest -run '^TestBench$$' -v -count=1 -timeout=60m -args -rounds=$(ROUNDS) -time=$(ROUND_TIME) -which='$(WHICH)' -records=$(RECORDS) -against='$(abspath $(AGAINST))'

# Ten million need about 25 GB of disk: GROWTH=0,1000000,10000000.
GROWTH ?= 0,1000000

.PHONY: bench-growth
bench-growth: redis-server ## See how the stores fare as records, tenants, callers and sizes grow (GROWTH)
	go test ./internal/benchtest -run '^TestGrowth$$' -v -count=1 -timeout=180m -args -growth -time=$(ROUND_TIME) -growth-records=$(GROWTH)

.PHONY: lint
lint: lint-go lint-mod lint-openapi ## Run every linter

.PHONY: lint-go
lint-go: $(GOLANGCI) ## gofmt, go vet, golangci-lint
	@unformatted=$$(gofmt -l cmd examples internal) && \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	go vet -tags=shapes,examples,image,mcpclients,controls,syscalls,golden ./...
	$(GOLANGCI) run ./...

.PHONY: lint-mod
lint-mod: ## go.mod and go.sum say exactly what the code needs
	go mod tidy -diff

.PHONY: lint-openapi
lint-openapi: ## Lint openapi.yaml
	scripts/lint-openapi.sh openapi.yaml

.PHONY: clean
clean: ## Remove what the other targets built
	rm -rf .bin

.PHONY: redis-server
redis-server:
	@scripts/need.sh redis-server redis-server

.PHONY: faketime
faketime: # its library gives a Redis another clock
	@scripts/need.sh faketime faketime

.PHONY: promtool
promtool:
	@scripts/need.sh promtool prometheus

.PHONY: clients
clients: # what the pages and examples are run with
	@scripts/need.sh curl curl
	@scripts/need.sh python3 python3
	@scripts/need.sh redis-cli redis-tools

# The name carries the version, so another version is another file to build.
$(GOLANGCI):
	GOBIN=$(CURDIR)/.bin/new go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv .bin/new/golangci-lint $@

$(HELM):
	GOBIN=$(CURDIR)/.bin/new CGO_ENABLED=0 go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	mv .bin/new/helm $@

$(KUBECONFORM):
	GOBIN=$(CURDIR)/.bin/new CGO_ENABLED=0 go install github.com/yannh/kubeconform/cmd/kubeconform@$(KUBECONFORM_VERSION)
	mv .bin/new/kubeconform $@

$(STRIPE_MOCK):
	GOBIN=$(CURDIR)/.bin/new CGO_ENABLED=0 go install github.com/stripe/stripe-mock@$(STRIPE_MOCK_VERSION)
	mv .bin/new/stripe-mock $@

$(VERSITYGW):
	GOBIN=$(CURDIR)/.bin/new CGO_ENABLED=0 go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)
	mv .bin/new/versitygw $@
