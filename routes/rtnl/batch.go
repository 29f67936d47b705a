package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/routefence/routefence/netattr"
	"github.com/routefence/routefence/routes"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// batchSize is how many routes go to the kernel at once. A message each costs two system calls; many at once fill the socket with
// their answers, of about 800 bytes each. New makes room for more than these; where it may not, net.core.rmem_default (208 KiB) has it.
const batchSize = 64

// howToTake are the flags that say how the kernel is to take a route.
var howToTake = map[routes.Op]uint16{
	// No exception for EEXIST: the list had no such route of ours, so its place is taken by a foreign one, which stays.
	routes.AddRoute:     unix.NLM_F_CREATE | unix.NLM_F_EXCL,
	routes.ReplaceRoute: unix.NLM_F_CREATE | unix.NLM_F_REPLACE,
	routes.DelRoute:     0,
}

// batch makes changes to routes and returns what each of them came to.
func (k *Kernel) batch(changes []routes.Change) []error {
	errs := make([]error, len(changes))
	var out []byte
	waiting := make(map[uint32]int, len(changes))
	for i, c := range changes {
		// Requests of the library and ours go over one socket: the library numbers them all.
		seq := nl.NewNetlinkRequest(0, 0).Seq
		out = appendRoute(out, seq, c)
		waiting[seq] = i
	}
	if err := unix.Sendto(k.dumps.GetFd(), out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return every(errs, err)
	}
	buf := make([]byte, 1<<14)
	for len(waiting) > 0 {
		n, err := k.receive(buf)
		if err != nil {
			// Such as ENOBUFS, where memory for answers is short. Most likely the changes are made; the next list tells.
			k.drain(buf)
			for _, i := range waiting {
				errs[i] = fmt.Errorf("no answer from rtnetlink: %w", err)
			}
			break
		}
		acknowledgements(buf[:n], func(seq uint32, err error) {
			i, ours := waiting[seq]
			if !ours {
				return
			}
			delete(waiting, seq)
			if errs[i] = err; changes[i].Op == routes.DelRoute {
				errs[i] = unless(unix.ESRCH, err)
			}
		})
	}
	return errs
}

// answerLimit is how long to wait for an answer. The kernel has written it before the system call that asked returns.
const answerLimit = 10 * time.Second

// receive reads what is there into buf. The library makes room for 64 KiB for every single answer, which took longer than the rest.
func (k *Kernel) receive(buf []byte) (int, error) {
	fd := k.dumps.GetFd()
	for deadline := time.Now().Add(answerLimit); ; {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return n, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return 0, unix.ETIMEDOUT
		}
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
	}
}

// drain takes away the answers that are left. Those to what was asked have all been written by now.
func (k *Kernel) drain(buf []byte) {
	for range batchSize {
		if _, _, err := unix.Recvfrom(k.dumps.GetFd(), buf, unix.MSG_DONTWAIT); errors.Is(err, unix.EAGAIN) {
			return
		}
	}
}

// acknowledgements goes over the answers in a datagram: struct nlmsghdr, then the error as a negative number, 0 for none.
func acknowledgements(b []byte, each func(seq uint32, err error)) {
	order := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(order.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return
		}
		if order.Uint16(b[4:]) == unix.NLMSG_ERROR && size >= unix.SizeofNlMsghdr+4 {
			var err error
			if errno := -int32(order.Uint32(b[unix.SizeofNlMsghdr:])); errno != 0 {
				err = unix.Errno(errno)
			}
			each(order.Uint32(b[8:]), err)
		}
		b = b[min(len(b), (size+3)&^3):]
	}
}

func every(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// appendRoute adds the message for one change: struct nlmsghdr, struct rtmsg, attributes.
func appendRoute(out []byte, seq uint32, c routes.Change) []byte {
	start, r := len(out), c.Route
	kind := uint16(unix.RTM_NEWROUTE)
	if c.Op == routes.DelRoute {
		kind = unix.RTM_DELROUTE
	}
	order := binary.NativeEndian
	out = order.AppendUint32(out, 0) // the length, in the end
	out = order.AppendUint16(out, kind)
	out = order.AppendUint16(out, unix.NLM_F_REQUEST|unix.NLM_F_ACK|howToTake[c.Op])
	out = order.AppendUint32(out, seq)
	out = order.AppendUint32(out, 0)

	scope, hopFlags := uint8(unix.RT_SCOPE_UNIVERSE), uint32(0)
	var hop routes.Hop
	if r.Type == routes.Unicast && len(r.Hops) > 0 {
		hop = r.Hops[0]
		if scope = unix.RT_SCOPE_LINK; hop.Gateway.IsValid() {
			// The gateway of a pod is often on no network of its own (Calico's 169.254.1.1): the kernel is not to look for one.
			scope, hopFlags = unix.RT_SCOPE_UNIVERSE, unix.RTNH_F_ONLINK
		}
	}
	// A table above 255 stands in an attribute.
	out = append(out, uint8(familyNumber(r.Family)), uint8(r.Dst.Bits()), 0, 0, unix.RT_TABLE_UNSPEC, r.Protocol, scope, uint8(r.Type))
	out = order.AppendUint32(out, hopFlags)
	out = appendAddr(out, unix.RTA_DST, r.Dst.Addr())
	out = netattr.AppendNumber(out, unix.RTA_TABLE, r.Table)
	out = netattr.AppendNumber(out, unix.RTA_PRIORITY, r.Metric)
	if hop.Link != 0 {
		out = netattr.AppendNumber(out, unix.RTA_OIF, uint32(hop.Link))
		out = appendAddr(out, unix.RTA_PREFSRC, r.Src)
		out = appendAddr(out, unix.RTA_GATEWAY, hop.Gateway)
	}
	order.PutUint32(out[start:], uint32(len(out)-start))
	return out
}

// appendAddr adds an address, unless it is the zero one.
func appendAddr(out []byte, kind uint16, a netip.Addr) []byte {
	if !a.IsValid() {
		return out
	}
	return netattr.Append(out, kind, a.AsSlice())
}
