# The one image of routefence, for the agent and the webhook; docs/image.md says what is in it and why. Any of docker (with BuildKit), podman and
# buildah builds it, for amd64 and arm64 on either, without emulation: "make image", or
#
#   docker build --build-arg VERSION=... --build-arg COMMIT=... .

FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26-bookworm AS packages
ARG TARGETARCH
# What the firewall needs, from Debian's packages for the target. They are unpacked, never installed: nothing of the target is run.
COPY image/packages /packages/list
WORKDIR /packages
RUN set -eu; \
    dpkg --add-architecture "$TARGETARCH"; \
    apt-get -qq update; \
    for name in $(sed 's/#.*//' list); do apt-get -qq -o APT::Sandbox::User=root download "$name:$TARGETARCH"; done; \
    for deb in *.deb; do \
        name=$(dpkg-deb --field "$deb" Package); \
        mkdir -p "$name/root"; \
        dpkg-deb --extract "$deb" "$name/root"; \
        dpkg-deb --field "$deb" >"$name/control"; \
        sha256sum <"$deb" >"$name/sha256"; \
    done; \
    rm -- *.deb

FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26-bookworm AS build
ENV PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin GOMODCACHE=/go/pkg/mod GOCACHE=/root/.cache/go-build GOTOOLCHAIN=local CGO_ENABLED=0
# Where modules come from, if not from Go's default.
ARG GOPROXY
ARG TARGETARCH
ARG VERSION=dev
ARG COMMIT=unknown
# Seconds since 1970 for everything that carries a time.
ARG SOURCE_DATE_EPOCH=0
WORKDIR /src
COPY . .
COPY --from=packages /packages /packages
RUN --mount=type=cache,id=routefence-modules,target=/go/pkg/mod --mount=type=cache,id=routefence-build,target=/root/.cache/go-build \
    set -eu; \
    GOOS=linux GOARCH="$TARGETARCH" go build -mod=readonly -trimpath -buildvcs=false $(sed 's/#.*//' image/goflags) \
        -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /binaries/ ./cmd/...; \
    go run -mod=readonly -buildvcs=false ./image/rootfs --packages=/packages --binaries=/binaries \
        --version="$VERSION" --epoch="$SOURCE_DATE_EPOCH" --out=/rootfs

FROM scratch
ARG VERSION=dev
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="routefence" \
      org.opencontainers.image.description="Keeps traffic to a Gardener shoot's nodes inside the VPN: agent and webhook" \
      org.opencontainers.image.source="https://github.com/routefence/routefence" \
      org.opencontainers.image.licenses="Apache-2.0 AND GPL-2.0-or-later AND LGPL-2.1-or-later" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /rootfs/ /
ENV PATH=/usr/sbin:/usr/bin
# Root, as capabilities that a pod adds are effective for root only. What it may do is for the pod to say: drop ALL, add NET_ADMIN and NET_RAW.
USER 0:0
ENTRYPOINT ["/usr/bin/routefence"]
