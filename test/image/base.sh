#!/bin/sh
# Makes the images that the Dockerfile starts from out of this machine, where no registry can be reached: Debian by debootstrap, Go as it is
# installed here. Needs root, debootstrap and buildah. Prints the directory that has them, a store of buildah's to read from, which is kept for
# the next time.
set -eu
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/routefence/image
names=$(sed -n 's/^FROM .*\(docker\.io[^ ]*\) .*/\1/p' Dockerfile | sort -u)
suite=${names##*-}

# The store is complete as soon as it has its name.
store=$cache/$({ go version; cat test/image/base.sh; echo "$names"; } | sha256sum | cut -c 1-16)
[ ! -d "$store" ] || { echo "$store"; exit; }
mkdir -p "$cache"
work=$(mktemp -d "$cache/making-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# mirror prints the one that this machine uses.
mirror() {
	codename=$(. /etc/os-release; echo "$VERSION_CODENAME")
	# shellcheck disable=SC2016 # apt replaces it
	apt-get indextargets --no-release-info --format '$(REPO_URI)' "Codename: $codename" 'Origin: Debian' 2>/dev/null | head -n 1
}

root=$work/root
# shellcheck disable=SC2046 # no mirror, no argument
debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" $(mirror) >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/locale "$root"/usr/share/doc "$root"/usr/share/man "$root"/usr/share/zoneinfo
# Whoever needs an authority of their own to get at modules needs it inside, too.
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true
mkdir -p "$root/usr/local/go"
tar -C "$(go env GOROOT)" --exclude=./test --exclude=./api --exclude=testdata -c . | tar -C "$root/usr/local/go" -x

export CONTAINERS_STORAGE_CONF="$work/storage.conf"
cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "vfs"
graphroot = "$work/store"
runroot = "$work/run"
END
container=$(buildah from scratch)
buildah copy --quiet "$container" "$root" / >/dev/null
buildah config --env PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
for name in $names; do
	buildah commit --quiet "$container" "$name" >/dev/null
done
buildah rm "$container" >/dev/null
mv -T "$work/store" "$store" 2>/dev/null || [ -d "$store" ] # somebody else may have been quicker
echo "$store"
