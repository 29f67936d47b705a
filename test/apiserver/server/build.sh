#!/bin/sh
# Prints the path of a program of Kubernetes for the tests: kube-apiserver, or the one named. KUBEBUILDER_ASSETS, if set, names a
# directory that holds a kube-apiserver; everything else is built from its Go module, which takes minutes, and kept outside the
# repository for the next time.
#
# usage: build.sh [kube-apiserver|kubelet]
set -eu
version=v1.34.4
program=${1:-kube-apiserver}
if [ "$program" = kube-apiserver ] && [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	[ -x "$KUBEBUILDER_ASSETS/kube-apiserver" ] || { echo "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS: no kube-apiserver in it" >&2; exit 1; }
	echo "$KUBEBUILDER_ASSETS/kube-apiserver"
	exit
fi
dir=${XDG_CACHE_HOME:-$HOME/.cache}/routefence/$program
binary=$dir/$program-$version
if [ ! -x "$binary" ]; then
	echo "building $program $version once, this takes minutes" >&2
	mkdir -p "$dir"
	# Under a name of its own until it is whole; a second build at the same time does no harm.
	new=$(mktemp "$dir/new.XXXXXX")
	trap 'rm -f "$new"' EXIT
	trap 'exit 130' INT TERM
	package=k8s.io/component-base/version
	(cd "$(dirname "$0")" && CGO_ENABLED=0 nice go build -trimpath -o "$new" \
		-ldflags "-s -w -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=34" \
		"k8s.io/kubernetes/cmd/$program")
	chmod +x "$new"
	mv "$new" "$binary"
fi
echo "$binary"
