package rtnl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rejections are how a route look-up ends that leads nowhere: at a blackhole, an unreachable or a prohibit route, or at none.
var rejections = []unix.Errno{unix.EINVAL, unix.EHOSTUNREACH, unix.EACCES, unix.ENETUNREACH}

// Egress returns the interface by which the kernel sends an unmarked packet of this process from one of its addresses to another
// address, "" if it sends it nowhere.
func (k *Kernel) Egress(from, to netip.Addr) (string, error) {
	var options *netlink.RouteGetOptions
	if from.IsValid() {
		options = &netlink.RouteGetOptions{SrcAddr: from.AsSlice()}
	}
	found, err := k.handle.RouteGetWithOptions(to.AsSlice(), options)
	if slices.ContainsFunc(rejections, func(e unix.Errno) bool { return errors.Is(err, e) }) {
		return "", nil
	}
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("look up the route from %s to %s: %w", from, to, err)
	}
	link, err := k.handle.LinkByIndex(found[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("name the interface of the route to %s: %w", to, err)
	}
	return link.Attrs().Name, nil
}
