package xtables

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
)

// Legacy tells of changes of the legacy tables, of which the kernel makes no event. It asks for their sizes: a flush, a deletion and an
// insertion show there at the price of a system call for each table, where a look at the rules would start programs. What leaves the
// size as it was is found by the resync.
type Legacy struct{}

// legacyPoll is how often. It is how long a flushed firewall stays open to sockets that are bound to a fenced interface.
const legacyPoll = 200 * time.Millisecond

// Run calls wake after changes, until ctx ends.
func (Legacy) Run(ctx context.Context, wake func()) {
	asks := map[policy.Family]int{}
	for _, f := range policy.Families {
		// iptables needs NET_RAW for its own socket. Any socket of the family will do.
		if fd, err := unix.Socket(domain[f], unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			asks[f] = fd
			defer unix.Close(fd)
		}
	}
	tick := time.NewTicker(legacyPoll)
	defer tick.Stop()
	for last := legacySizes(asks); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := legacySizes(asks); now != last {
			last = now
			wake()
		}
	}
}

var domain = map[policy.Family]int{policy.IPv4: unix.AF_INET, policy.IPv6: unix.AF_INET6}

// legacySizes is what the sizes of all legacy tables look like. It asks for none that does not exist: that would make it.
func legacySizes(asks map[policy.Family]int) string {
	var out strings.Builder
	for _, f := range policy.Families {
		fd, open := asks[f]
		names, err := legacyTables(f)
		if err != nil || !open {
			continue
		}
		for _, name := range names {
			if info, err := tableInfo(fd, f, name); err == nil {
				fmt.Fprintln(&out, firewall.Table{Family: f, Name: name}, info.Entries, info.Size, info.HookEntry, info.Underflow)
			}
		}
	}
	return out.String()
}

// getInfo is struct ipt_getinfo, and struct ip6t_getinfo as well.
type getInfo struct {
	Name                 [32]byte
	ValidHooks           uint32
	HookEntry, Underflow [5]uint32
	Entries, Size        uint32
}

// optInfo is the socket option that fills it in (IPT_SO_GET_INFO, IP6T_SO_GET_INFO).
const optInfo = 64

func tableInfo(fd int, f policy.Family, name string) (getInfo, error) {
	level := unix.SOL_IP
	if f == policy.IPv6 {
		level = unix.SOL_IPV6
	}
	var info getInfo
	copy(info.Name[:len(info.Name)-1], name)
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), optInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return info, fmt.Errorf("ask for the size of legacy table %s: %w", name, errno)
	}
	return info, nil
}
