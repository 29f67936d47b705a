#!/bin/sh
# Makes everything that a release consists of, in dist/VERSION. The same commit, Go and Debian packages give the same bytes.
#
# usage: VERSION=vX.Y.Z [IMAGE=REGISTRY/routefence] [PLATFORMS=...] release.sh
set -eu
cd "$(dirname "$0")/.."
echo "${VERSION:-}" | grep -Eqx 'v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?' ||
	{ echo "VERSION=${VERSION:-}: want a semantic version such as v1.2.3 or v1.2.3-rc.1" >&2; exit 2; }
IMAGE=${IMAGE:-routefence}
case ${IMAGE##*/} in
*[:@]*) echo "IMAGE=$IMAGE: want a name without tag or digest; the tag is VERSION" >&2; exit 2 ;;
esac
[ -z "$(git status --porcelain)" ] || { echo "the work tree has changes that are in no commit, so nobody could make this release again (git status)" >&2; exit 1; }

COMMIT=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
PLATFORMS=${PLATFORMS:-linux/amd64,linux/arm64}
export VERSION COMMIT SOURCE_DATE_EPOCH PLATFORMS
out=dist/$VERSION
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
rm -rf "$out"
mkdir -p "$out"

image/build.sh "routefence:$VERSION" "$PWD/$out"

# member FILE ARCHIVE prints one file of an image.
member() {
	mkdir "$work/layout"
	tar -C "$work/layout" -xf "$2"
	for blob in "$work"/layout/blobs/sha256/*; do
		tar -xzOf "$blob" "$1" 2>/dev/null || true # only the layer is a tar
	done
	rm -rf "$work/layout"
}
for platform in $(echo "$PLATFORMS" | tr ',' ' '); do
	arch=${platform##*/}
	archive=$out/routefence-$VERSION-linux-$arch.oci.tar
	for name in routefence routefence-webhook; do
		member "usr/bin/$name" "$archive" >"$out/$name-linux-$arch"
		chmod 755 "$out/$name-linux-$arch"
	done
	member usr/share/doc/routefence/sbom.spdx.json "$archive" >"$out/routefence-$VERSION-linux-$arch.spdx.json"
done

# render FILE DIRECTORY [COMPONENT...]: what kustomize makes of a base or overlay and its components, with this image.
render() {
	file=$1
	shift
	mkdir -p "$work/overlay"
	cp -R manifests "$work/manifests"
	{
		echo "apiVersion: kustomize.config.k8s.io/v1beta1"
		echo "kind: Kustomization"
		echo "resources: [../manifests/$1]"
		shift
		echo "components: [$(for component in "$@"; do printf '../manifests/%s,' "$component"; done)]"
		echo "images: [{name: routefence, newName: \"$IMAGE\", newTag: \"$VERSION\"}]"
	} >"$work/overlay/kustomization.yaml"
	go run sigs.k8s.io/kustomize/kustomize/v5@v5.8.1 build "$work/overlay" >"$out/$file"
	rm -rf "$work/overlay" "$work/manifests"
}
render routefence-webhook.yaml webhook
render routefence-webhook-monitoring.yaml webhook monitoring
render routefence-provider-local.yaml provider-local

(cd "$out" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
echo "made $out:"
cat "$out/SHA256SUMS"
