#!/bin/sh
# Makes sure that what "make demo" or "make test" runs is there: installs it on Debian as root, elsewhere names all that is
# missing at once and exits with 2.
#
# usage: deps.sh demo|test|e2e|image-test|test-vm
set -eu
PATH=$PATH:/usr/sbin:/sbin

# program:package, the packages as Debian calls them
needs="ip:iproute2 iptables-nft-restore:iptables iptables-legacy-restore:iptables nft:nftables"
case ${1:-} in
demo) needs="$needs openvpn:openvpn" ;;
# The race detector links with a C compiler and the C library's headers.
test) needs="$needs ss:iproute2 ipset:ipset conntrack:conntrack gcc:gcc etcd:etcd-server /usr/include/stdlib.h:libc6-dev" ;;
# A machine of the shoot runs on this one's programs; its pods have them mounted.
e2e) needs="$needs gcc:gcc /usr/include/stdlib.h:libc6-dev etcd:etcd-server openvpn:openvpn containerd:containerd runc:runc /usr/lib/cni/bridge:containernetworking-plugins" ;;
# The image's bases are made here. The last is the profile that container engines run everything with.
image-test) needs="$needs ipset:ipset buildah:buildah runc:runc debootstrap:debootstrap apt-get:apt dpkg-deb:dpkg /usr/share/containers/seccomp.json:golang-github-containers-common" ;;
# Guests take their kernels from Debian's packages and everything else from this machine.
test-vm) needs="$needs ss:iproute2 ipset:ipset conntrack:conntrack qemu-system-x86_64:qemu-system-x86 busybox:busybox-static apt-get:apt dpkg-deb:dpkg" ;;
*)
	echo "usage: $0 demo|test|e2e|image-test|test-vm" >&2
	exit 2
	;;
esac

present() {
	case $1 in
	/*) [ -e "$1" ] ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

# missing prints the needs that are not met, one a line.
missing() {
	for need in $needs; do
		present "${need%%:*}" || echo "$need"
	done
}

# refuse names everything that stands in the way.
refuse() {
	echo "make $target cannot run here:" >&2
	[ "$(id -u)" = 0 ] || echo "  it needs root, for network namespaces (it touches nothing outside of those it makes)" >&2
	for need in $lacking; do
		echo "  ${need%%:*} is missing (Debian's package ${need##*:})" >&2
	done
	exit 2
}

# patiently runs apt-get again while another one holds a lock. apt-get can wait by itself for dpkg's lock, but not for
# that of the package lists.
patiently() {
	tries=60
	while ! apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; do
		tries=$((tries - 1))
		if [ "$tries" = 0 ] || ! grep -qi 'could not get lock\|unable to lock\|is locked by' "$log"; then
			echo "apt-get $* failed:" >&2
			cat "$log" >&2
			return 1
		fi
		sleep 5
	done
}

target=$1
lacking=$(missing)
[ "$(id -u)" = 0 ] || refuse
if [ -n "$lacking" ]; then
	command -v apt-get >/dev/null 2>&1 || refuse
	packages=$(for need in $lacking; do echo "${need##*:}"; done | sort -u | tr '\n' ' ')
	echo "Installing from Debian's packages: $packages"
	export DEBIAN_FRONTEND=noninteractive
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	trap 'exit 130' INT TERM
	# Lists may be missing or out of date; a mirror that fails in part may still have what is needed.
	patiently update || echo "going on with the package lists that are there" >&2
	# shellcheck disable=SC2086 # a list of words
	patiently install -y --no-install-recommends $packages
	lacking=$(missing)
	[ -z "$lacking" ] || refuse
fi
if { [ "$target" = demo ] || [ "$target" = e2e ]; } && [ ! -c /dev/net/tun ]; then
	echo "make $target needs /dev/net/tun for OpenVPN (modprobe tun)" >&2
	exit 2
fi
