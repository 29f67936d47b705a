#!/bin/sh
# Makes the images that the Dockerfile starts from out of this machine, where no registry can be reached: Debian by debootstrap, Go as it is
# installed here. Needs root, debootstrap and buildah, and puts them where buildah keeps its images.
set -eu
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/routefence/image
mkdir -p "$cache"

names=$(sed -n 's/^FROM .*\(docker\.io[^ ]*\) .*/\1/p' Dockerfile | sort -u)
suite=${names##*-}

# mirror prints the one that this machine uses.
mirror() {
	apt-get indextargets --no-release-info --format '$(REPO_URI)' "Codename: $(. /etc/os-release; echo "$VERSION_CODENAME")" 'Origin: Debian' 2>/dev/null | head -n 1
}

# Debian itself is the slow part. The file is complete as soon as it has its name.
debian=$cache/$suite-$(dpkg --print-architecture).tar
if [ ! -e "$debian" ]; then
	work=$(mktemp -d "$cache/making-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 130' INT TERM
	# shellcheck disable=SC2046 # no mirror, no argument
	debootstrap --variant=minbase --include=ca-certificates "$suite" "$work/root" $(mirror) >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
	rm -rf "$work"/root/var/cache/apt/* "$work"/root/var/lib/apt/lists/* "$work"/root/usr/share/locale "$work"/root/usr/share/doc
	tar -C "$work/root" --one-file-system -cf "$work/tar" .
	mv "$work/tar" "$debian"
fi

container=$(buildah from scratch)
root=$(buildah mount "$container")
tar -C "$root" -xf "$debian"
# Whoever needs an authority of their own to get at modules needs it inside, too.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true
tar -C "$(go env GOROOT)" --exclude=./test --exclude=./api --exclude=testdata -c . | { mkdir -p "$root/usr/local/go" && tar -C "$root/usr/local/go" -x; }
buildah config --env PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
buildah umount "$container" >/dev/null
for name in $names; do
	buildah commit --quiet "$container" "$name" >/dev/null
done
buildah rm "$container" >/dev/null
