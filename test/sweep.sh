#!/bin/sh
# Removes what a killed test or demo may have left: namespaces, control groups and directories called rf<pid>-..., if no process <pid>
# exists any more. Those of runs that are still going on stay.
set -eu
PATH=$PATH:/usr/sbin:/sbin

# dead tells whether a name is one of ours and its owner is gone.
dead() {
	pid=${1#rf}
	pid=${pid%%-*}
	case $pid in '' | *[!0-9]*) return 1 ;; esac
	[ ! -d "/proc/$pid" ]
}

for path in /run/netns/rf[0-9]*-*; do
	name=${path##*/}
	{ [ -e "$path" ] && dead "$name"; } || continue
	for pid in $(ip netns pids "$name"); do
		kill -KILL "$pid"
	done
	ip netns delete "$name"
	echo "removed namespace $name"
done
# Control groups of containers and of kubelets, of either version: with what is in them, as long as no process is.
find /sys/fs/cgroup -depth -type d -name 'rf[0-9]*-*' 2>/dev/null | while read -r path; do
	! dead "${path##*/}" || { find "$path" -depth -type d -exec rmdir {} \; && echo "removed control group $path"; }
done
for path in "${TMPDIR:-/tmp}"/rf[0-9]*-*; do
	{ [ -d "$path" ] && dead "${path##*/}"; } || continue
	rm -rf -- "$path"
	echo "removed directory $path"
done
