#!/bin/sh
# The guest's first process: makes it look like a machine, runs the tests in order, says what became of each on the
# console, and switches off.
export PATH=/usr/bin HOME=/root TERM=dumb
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/net /dev/shm
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mkdir -p /run/netns /run/lock
# Nobody else makes this node, and without it nothing ever loads the driver.
[ -e /dev/net/tun ] || mknod -m 666 /dev/net/tun c 10 200
for fd in fd:/proc/self/fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
	ln -sf "${fd#*:}" "/dev/${fd%%:*}"
done
# In user-mode Linux IPv6 is a module, too. The settings of nf_conntrack appear only with it.
modprobe -a ipv6 nf_conntrack 2>/dev/null
ip link set lo up
# Slow as a guest is, tests would see addresses come up: new namespaces inherit that there is no waiting for duplicates.
echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
echo 1 >/proc/sys/net/core/devconf_inherit_init_net
# From here on the console belongs to the tests; a kernel that dies is still heard.
echo 1 >/proc/sys/kernel/printk

# run runs the tests of a package: run PACKAGE ARGUMENTS
run() {
	cd "/src/$1" || return
	echo "GUEST begins $1"
	shift
	./test "$@" </dev/null 2>&1
	echo "GUEST ends $?"
}
. /order
echo "GUEST is done"
poweroff -f
