#!/bin/sh
# Builds the image with whatever of docker, podman and buildah is there, once for each platform.
#
# usage: build.sh NAME:TAG [DIRECTORY]
#
# Without a directory the images stay with the engine: as NAME:TAG if it is one platform, else as NAME:TAG-ARCHITECTURE. With a directory
# they are written there as OCI archives, which are the same for the same commit, Go and Debian packages.
#
# PLATFORMS (this machine's), VERSION, COMMIT, SOURCE_DATE_EPOCH, GOPROXY and ENGINE are taken from the environment.
set -eu
[ $# = 1 ] || [ $# = 2 ] || { echo "usage: $0 NAME:TAG [DIRECTORY]" >&2; exit 2; }
image=$1
out=${2:-}
cd "$(dirname "$0")/.."
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

# engine prints the first that works. A docker client without its daemon, or without BuildKit, does not.
engine() {
	if docker buildx version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
		echo docker
	elif command -v podman >/dev/null 2>&1; then
		echo podman
	elif command -v buildah >/dev/null 2>&1; then
		echo buildah
	else
		echo "building the image needs docker (running, with buildx), podman or buildah, and none is here (Debian: apt-get install buildah)" >&2
		return 2
	fi
}
ENGINE=${ENGINE:-$(engine)}
GOPROXY=${GOPROXY:-$(go env GOPROXY 2>/dev/null || true)}

case $(uname -m) in
aarch64) host=linux/arm64 ;;
*) host=linux/amd64 ;;
esac
PLATFORMS=${PLATFORMS:-$host}

# build PLATFORM NAME
build() {
	set -- --platform "$1" --tag "$2" \
		--build-arg VERSION="${VERSION:-dev}" --build-arg COMMIT="${COMMIT:-unknown}" --build-arg SOURCE_DATE_EPOCH="$epoch"
	[ -z "$GOPROXY" ] || set -- "$@" --build-arg GOPROXY="$GOPROXY"
	case $ENGINE in
	docker) docker buildx build "$@" --provenance=false --load . ;;
	# Older versions do not know what they run on.
	*) $ENGINE build --timestamp "$epoch" --build-arg BUILDPLATFORM="$host" "$@" . ;;
	esac
}

# save NAME FILE: as an OCI layout first, since the archives that engines write carry the time of day.
save() {
	layout=$(mktemp -d)
	case $ENGINE in
	docker) docker save "$1" | tar -x -C "$layout" ;;
	podman) podman push --quiet "$1" "oci:$layout:${1##*:}" ;;
	buildah) buildah push --quiet "$1" "oci:$layout:${1##*:}" ;;
	esac
	tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' -C "$layout" -cf "$2" .
	rm -rf "$layout"
}

for platform in $(echo "$PLATFORMS" | tr ',' ' '); do
	arch=${platform##*/}
	case $platform in
	linux/amd64 | linux/arm64) ;;
	*) echo "PLATFORMS=$PLATFORMS: $platform is not supported; want linux/amd64, linux/arm64 or both, separated by a comma" >&2; exit 2 ;;
	esac
	name=$image
	[ "$PLATFORMS" = "$platform" ] && [ -z "$out" ] || name=$image-$arch
	build "$platform" "$name"
	[ -z "$out" ] || save "$name" "$out/routefence-${image##*:}-linux-$arch.oci.tar"
	echo "built $name for $platform with $ENGINE"
done
