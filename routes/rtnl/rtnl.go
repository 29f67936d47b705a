// Package rtnl reads and writes the kernel's routing over rtnetlink.
package rtnl

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Kernel is the routing of the network namespace in which New was called.
type Kernel struct {
	handle *netlink.Handle
	// dumps is the socket for what dump.go reads itself.
	dumps *nl.NetlinkSocket
	// found is how many routes the last list had, to make room at once for as many.
	found int
}

// New opens a socket in the calling thread's network namespace. Everything goes through that socket, so the namespace
// stays the same whichever thread calls later.
func New() (*Kernel, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink socket: %w", err)
	}
	// Room for the answers to a batch, whatever net.core.rmem_default is. It is no error where that is refused.
	_ = unix.SetsockoptInt(s.GetFd(), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 1<<18)
	return &Kernel{handle: h, dumps: s}, nil
}

// dumpTries bounds how often a dump is repeated that the kernel says was interrupted by a change.
const dumpTries = 10

// List returns the routing as it is now. A dump that a change interrupts is partial and thus no answer: it is repeated.
func (k *Kernel) List() (routes.State, error) {
	var err error
	for range dumpTries {
		var s routes.State
		if s, err = k.list(); err == nil || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return s, err
		}
	}
	return routes.State{}, fmt.Errorf("list routing: still changing after %d tries: %w", dumpTries, err)
}

func (k *Kernel) list() (routes.State, error) {
	s := routes.State{Routes: make([]routes.Route, 0, k.found+16)}
	var err error
	if s.Links, err = k.links(); err != nil {
		return s, fmt.Errorf("list links: %w", err)
	}
	for _, f := range policy.Families {
		if err := k.dumpRules(f, &s); err != nil {
			return s, fmt.Errorf("list %s rules: %w", f, err)
		}
		if err := k.dumpRoutes(f, &s); err != nil {
			return s, fmt.Errorf("list %s routes: %w", f, err)
		}
	}
	k.found = len(s.Routes)
	return s, nil
}

func (k *Kernel) links() ([]routes.Link, error) {
	links, err := k.handle.LinkList()
	if err != nil {
		return nil, err
	}
	addrs, err := k.handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	out := make([]routes.Link, 0, len(links))
	for _, l := range links {
		a := l.Attrs()
		link := routes.Link{
			Index: a.Index, Name: a.Name, Group: a.Group,
			Up:    a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_RUNNING != 0,
			Saved: savedGroup(a.AltNames),
			Lower: lowerOf(l), Master: a.MasterIndex, Twin: twinOf(l), Kind: l.Type(),
		}
		link.Outer, link.Peer = endsOf(l)
		for _, addr := range addrs {
			if ip, ok := netip.AddrFromSlice(addr.IP); ok && addr.LinkIndex == a.Index {
				link.Addrs = append(link.Addrs, ip.Unmap())
			}
		}
		out = append(out, link)
	}
	return out, nil
}

// savedGroup reads the note that SaveGroup left.
func savedGroup(altNames []string) *uint32 {
	for _, name := range altNames {
		if rest, ok := strings.CutPrefix(name, routes.SavedPrefix); ok {
			if n, err := strconv.ParseUint(rest, 10, 32); err == nil {
				group := uint32(n)
				return &group
			}
		}
	}
	return nil
}

// Apply makes the changes in their order. What is gone already is no error: another process of ours may be at it. When a change
// fails the others are still tried, except that nothing is removed after something could not be added: no error weakens what stands.
func (k *Kernel) Apply(changes []routes.Change) error {
	var errs []error
	added := true
	for len(changes) > 0 && (added || !changes[0].Removes()) {
		now := leading(changes)
		for i, err := range k.write(now) {
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w%s", now[i], err, hint(err)))
				added = added && now[i].Removes()
			}
		}
		changes = changes[len(now):]
	}
	return joinFew(errs)
}

// leading returns the changes at the head of a list that can be made at once: some routes that all come or all go, or else one.
func leading(changes []routes.Change) []routes.Change {
	n := 0
	for n < len(changes) && n < batchSize && changes[n].OfRoute() && changes[n].Removes() == changes[0].Removes() {
		n++
	}
	return changes[:max(1, n)]
}

func (k *Kernel) write(changes []routes.Change) []error {
	if changes[0].OfRoute() {
		return k.batch(changes)
	}
	return []error{k.apply(changes[0])}
}

// joinFew keeps a message readable when ten thousand changes fail for one reason.
func joinFew(errs []error) error {
	const few = 3
	if len(errs) <= few {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs[:few:few], fmt.Errorf("and %d more", len(errs)-few))...)
}

func hint(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return " (needs NET_ADMIN)"
	case errors.Is(err, unix.EEXIST):
		return " (a foreign route has its place: same destination and metric; remove that)"
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EOPNOTSUPP):
		return " (the kernel has no such family or feature here)"
	}
	return ""
}

func (k *Kernel) apply(c routes.Change) error {
	switch c.Op {
	case routes.AddRule:
		return unless(unix.EEXIST, k.handle.RuleAdd(toRule(c.Rule)))
	case routes.DelRule:
		return unless(unix.ENOENT, k.handle.RuleDel(toRule(c.Rule)))
	}
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: c.Link.Index, Name: c.Link.Name}}
	switch c.Op {
	case routes.SaveGroup:
		return unless(unix.EEXIST, k.handle.LinkAddAltName(link, routes.SavedName(c.Group)))
	case routes.ForgetGroup:
		return k.handle.LinkDelAltName(link, routes.SavedName(c.Group))
	case routes.SetGroup:
		return k.handle.LinkSetGroup(link, int(c.Group))
	}
	return fmt.Errorf("unknown change %d", c.Op)
}

// unless drops the error that says the kernel is already as wanted.
func unless(done unix.Errno, err error) error {
	if errors.Is(err, done) {
		return nil
	}
	return err
}

func toRule(r routes.Rule) *netlink.Rule {
	out := netlink.NewRule()
	out.Family = familyNumber(r.Family)
	out.Priority = int(r.Priority)
	out.Table = int(r.Table)
	out.Protocol = r.Protocol
	out.SuppressPrefixlen = int(r.SuppressPrefix) - 1
	out.SuppressIfgroup = int(r.SuppressGroup) - 1
	out.Mark = r.Mark
	if r.Mask != 0 {
		out.Mask = &r.Mask
	}
	out.IifName, out.OifName, out.Invert, out.Tos = r.IIF, r.OIF, r.Invert, uint(r.TOS)
	if r.Src.IsValid() {
		out.Src = toIPNet(r.Src)
	}
	if r.Dst.IsValid() {
		out.Dst = toIPNet(r.Dst)
	}
	return out
}

func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func familyNumber(f policy.Family) int {
	if f == policy.IPv4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
