# "make demo" and "make test" do everything on a fresh Debian machine with Go, git, make and root. "make" lists the targets.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
GOFLAGS_BUILD := $(shell sed 's/\#.*//' image/goflags)
STATICCHECK := go run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# How long each fuzz target runs, and which benchmarks do.
FUZZTIME ?= 10s
BENCH ?= .
# What the image is called, and what it is built for if not for this machine.
IMAGE ?= routefence:$(VERSION)
PLATFORMS ?=

# Debian keeps ip and iptables where not every shell looks.
export PATH := $(PATH):/usr/sbin:/sbin

# The webhook is built once it is there.
BINARIES := $(patsubst cmd/%,bin/%,$(wildcard cmd/routefence cmd/routefence-webhook))

# Packages whose tests make network namespaces stand on one of these.
NEEDS_ROOT := routefence/test/\(netns\|rig\)

.PHONY: help build image image-test release demo test e2e test-vm apiserver unit bench lint mutate fuzz clean cleanup $(BINARIES)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{ printf "%-14s %s\n", $$1, $$2 }'

build: $(BINARIES) ## build the binaries into bin/

# Phony: go itself knows best what is up to date.
$(BINARIES): bin/%:
	@echo "go build -o $@ ./cmd/$*   (with the flags in image/goflags)"
	@CGO_ENABLED=0 go build -trimpath $(GOFLAGS_BUILD) -ldflags '$(LDFLAGS)' -o $@ ./cmd/$*

image: ## build the container image with docker, podman or buildah (PLATFORMS=linux/amd64,linux/arm64)
	@VERSION='$(VERSION)' COMMIT='$(COMMIT)' PLATFORMS='$(PLATFORMS)' image/build.sh '$(IMAGE)'

image-test: ## build the image for both platforms without any registry, and run it as Kubernetes would (root; minutes)
	@test/deps.sh image-test
	PLATFORMS=linux/amd64,linux/arm64 go test -count=1 -timeout 20m ./test/image

release: ## make a release in dist/ (VERSION=vX.Y.Z, IMAGE=REGISTRY/routefence)
	@VERSION='$(VERSION)' IMAGE='$(if $(filter file,$(origin IMAGE)),,$(IMAGE))' PLATFORMS='$(PLATFORMS)' image/release.sh

demo: ## show the defect and its cure with a real OpenVPN (root; under a minute)
	@test/deps.sh demo
	@$(MAKE) --no-print-directory build
	@go build -o bin/demo ./test/demo
	@bin/demo

# One package after the other: they measure times, and a full machine blurs those. Building first keeps all cores busy.
test: ## run all tests with the race detector (root; minutes)
	@test/deps.sh test
	@test/deps.sh image-test
	@test/deps.sh test-vm
	@test/deps.sh e2e
	@$(MAKE) --no-print-directory build
	go build -race ./...
	go test -race -count=1 -p 1 -timeout 15m ./...
	@$(MAKE) --no-print-directory apiserver
	go build -o bin/vm ./test/vm
	bin/vm
	@$(MAKE) --no-print-directory e2e

test-vm: ## run all tests that make sense there in guests with Debian's kernels (long minutes)
	@test/deps.sh test-vm
	go build -o bin/vm ./test/vm
	bin/vm -all

apiserver: ## test --shoot against a real kube-apiserver (root; builds that once, which takes minutes)
	@test/deps.sh test
	@test/apiserver/server/build.sh
	cd test/apiserver && go test -race -count=1 -timeout 20m ./...

e2e: ## replay the defect and its cure on a real Kubernetes with a real VPN (root; builds kube-apiserver and kubelet once)
	@test/deps.sh e2e
	@test/deps.sh image-test
	@test/apiserver/server/build.sh
	@test/apiserver/server/build.sh kubelet
	@mkdir -p bin
	cd test/e2e && go test -race -count=1 -parallel 6 -timeout 20m -table '$(CURDIR)/bin/e2e.md'

unit: ## run the tests that need neither root nor installed programs
	go test $$(go list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | grep -v '$(NEEDS_ROOT)' | cut -d' ' -f1)

bench: ## run the benchmarks (root; BENCH=pattern chooses)
	@test/deps.sh test
	go test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 ./...

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted: $$unformatted"; exit 1; }
	go vet -tags vm ./...
	go -C test/apiserver vet ./...
	go -C test/e2e vet ./...
	$(STATICCHECK) -tags vm ./...
	cd test/apiserver && $(STATICCHECK) ./...
	cd test/e2e && $(STATICCHECK) ./...

mutate: ## break the fence in a copy of the tree, and see that a test notices each time (root; minutes)
	@test/deps.sh test
	@test/apiserver/server/build.sh
	go run ./test/mutate

fuzz: ## run each fuzz target for a while (FUZZTIME=10s)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's/func //' | while IFS=: read -r file name; do \
		echo "$$name in $$(dirname "$$file")"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime '$(FUZZTIME)' "./$$(dirname "$$file")" || exit 1; \
	done

clean: cleanup ## remove bin/ and what killed runs left
	rm -rf bin

cleanup: ## remove namespaces and directories that killed runs left
	@test/sweep.sh
