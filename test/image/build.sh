#!/bin/sh
# Builds the image for the tests as OCI archives in a directory, without any registry. All that buildah needs and leaves is in there, too.
#
# usage: [PLATFORMS=...] build.sh DIRECTORY [SOURCE]
set -eu
dir=$1
source=${2:-$(dirname "$0")/../..}
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$dir/tmp/buildah-cache" "$dir/archives"
base=$("$(dirname "$0")/base.sh")
export CONTAINERS_STORAGE_CONF="$dir/storage.conf" BUILDAH_ISOLATION=chroot TMPDIR="$dir/tmp"
cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "vfs"
graphroot = "$dir/storage"
runroot = "$dir/run"
[storage.options]
additionalimagestores = ["$base"]
END
# This machine's caches of Go, under the names of the Dockerfile's. Where buildah keeps them elsewhere, it only takes longer.
ln -sfn "$(go env GOCACHE)" "$TMPDIR/buildah-cache/routefence-build"
ln -sfn "$(go env GOMODCACHE)" "$TMPDIR/buildah-cache/routefence-modules"

export ENGINE=buildah VERSION=v0.0.0-test COMMIT=0123456789abcdef SOURCE_DATE_EPOCH=1767225600
"$source/image/build.sh" routefence:test "$dir/archives"
