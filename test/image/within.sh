#!/bin/sh
# Runs a command that builds the image, with buildah and without any registry. All that buildah needs and leaves is in the directory.
#
# usage: within.sh DIRECTORY COMMAND...
set -eu
dir=$1
shift
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$dir/tmp/buildah-cache"
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

export ENGINE=buildah
exec "$@"
