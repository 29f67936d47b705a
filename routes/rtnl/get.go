package rtnl

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Get returns the kernel's own answer to a look-up, in a line. It is for people: a look-up answers for one unmarked
// packet at one moment, which is no verdict on an address.
func (k *Kernel) Get(addr netip.Addr) string {
	found, err := k.handle.RouteGet(addr.AsSlice())
	switch {
	case errors.Is(err, unix.EINVAL):
		return "rejected by a blackhole route (Invalid argument)"
	case errors.Is(err, unix.ENETUNREACH):
		return "no route (Network is unreachable)"
	case err != nil:
		return "rejected: " + err.Error()
	case len(found) == 0:
		return "no answer"
	}
	r := found[0]
	name := fmt.Sprintf("interface %d", r.LinkIndex)
	if l, err := k.handle.LinkByIndex(r.LinkIndex); err == nil {
		name = l.Attrs().Name
	}
	if r.Gw != nil {
		return fmt.Sprintf("via %s dev %s", r.Gw, name)
	}
	return "dev " + name
}
