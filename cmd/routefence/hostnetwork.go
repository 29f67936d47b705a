package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/routefence/routefence/cmd/internal/command"
)

// whereabouts are what tells the network namespace of a pod from that of its host.
type whereabouts struct {
	// hosts and pods are the addresses of the host and of the pod, as Kubernetes gave them.
	hosts, pods []netip.Addr
	// first says that this is the network namespace that the kernel started with.
	first bool
}

// host returns how it is known that this is a host's network, or nothing. The addresses come first: a pod of a sandboxing runtime may have
// a kernel, and its first namespace, to itself.
func (w whereabouts) host() string {
	if len(w.hosts) > 0 && len(w.pods) > 0 {
		for _, a := range w.pods {
			if slices.Contains(w.hosts, a) {
				return fmt.Sprintf("POD_IP and the host's address are both %s, so this is a host's network namespace", a)
			}
		}
		return ""
	}
	if w.first {
		return "this is the kernel's first network namespace, which is a host's"
	}
	return ""
}

// firstOnly is there for processes in the first network namespace alone, however many other namespaces they are in: the kernel registers most of
// net.core there only. Inode numbers and process 1 tell less: a container sees its own process 1, and must not look at the host's.
const firstOnly = "/proc/sys/net/core/dev_weight"

// here looks where this process is.
func here(hosts []netip.Addr) whereabouts {
	w := whereabouts{hosts: hosts}
	for item := range strings.SplitSeq(os.Getenv("POD_IP"), ",") {
		if a, err := netip.ParseAddr(strings.TrimSpace(item)); err == nil {
			w.pods = append(w.pods, a.Unmap())
		}
	}
	_, err := os.Stat(firstOnly)
	w.first = err == nil
	return w
}

// refuseHost is the guard against fencing a node instead of a pod, which cuts off everything on it.
func (f *agentFlags) refuseHost(hosts []netip.Addr) error {
	if why := here(hosts).host(); why != "" && !f.hostNetwork {
		return command.Usage("--host-network=false: %s; a fence here is for all that runs on the node, not for one pod "+
			"(run it in a pod without hostNetwork, or say --host-network if that is what you want)", why)
	}
	return nil
}
