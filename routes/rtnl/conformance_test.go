package rtnl

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/test/netns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// space is a small world in which random routes meet often: the probes are its addresses.
type space struct {
	family string
	// shortest is the length of the prefix that holds all probes.
	shortest int
	prefix   func(r *rand.Rand) string
	probe    func(i int) netip.Addr
}

var spaces = []space{
	{"-4", 24, func(r *rand.Rand) string {
		bits := 24 + r.IntN(9)
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 250, 0, byte(r.IntN(256))}), bits).Masked().String()
	}, func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 250, 0, byte(i)}) }},
	{"-6", 120, func(r *rand.Rand) string {
		a := netip.MustParseAddr("fd00:250::").As16()
		a[15] = byte(r.IntN(256))
		return netip.PrefixFrom(netip.AddrFrom16(a), 120+r.IntN(9)).Masked().String()
	}, func(i int) netip.Addr {
		a := netip.MustParseAddr("fd00:250::").As16()
		a[15] = byte(i)
		return netip.AddrFrom16(a)
	}},
}

// TestPathsAgreeWithTheKernel fills a namespace with random routes and rules and asks the kernel about every address: with
// no mark its answer must be the path for all packets, with a mark one of the paths.
func TestPathsAgreeWithTheKernel(t *testing.T) {
	for seed := range uint64(8) {
		for _, s := range spaces {
			t.Run(fmt.Sprintf("seed%d%s", seed, s.family), func(t *testing.T) {
				k := pod(t)
				populate(t, rand.New(rand.NewPCG(seed, 1)), s)
				state, err := k.List()
				if err != nil {
					t.Fatal(err)
				}
				for i := range 256 {
					compare(t, k, state, s.probe(i), 0)
					compare(t, k, state, s.probe(i), 1)
				}
				if t.Failed() {
					t.Log(netns.Run(t, "ip "+s.family+" rule"), netns.Run(t, "ip "+s.family+" route show table all"))
				}
			})
		}
	}
}

// populate makes routes and rules of every kind the walk knows. Some clash and are refused; that is all right.
func populate(t *testing.T, r *rand.Rand, s space) {
	t.Helper()
	netns.Run(t, "ip link set eth0 group 9604")
	targets := []string{"dev eth0", "dev tun0", "dev eth0", "dev tun0"}
	tables := []string{"main", "100", "9604"}
	var batch []string
	for range 25 {
		kind, target := "", targets[r.IntN(len(targets))]
		if r.IntN(3) == 0 {
			kind, target = []string{"blackhole", "unreachable", "prohibit", "throw"}[r.IntN(4)], ""
		}
		batch = append(batch, fmt.Sprintf("route add %s %s %s table %s metric %d", kind, s.prefix(r), target,
			tables[r.IntN(len(tables))], 1024+r.IntN(3)))
	}
	for _, action := range []string{
		"lookup main suppress_prefixlength 0 suppress_ifgroup 9604", "lookup 9604", "lookup 100",
		"lookup 100 suppress_ifgroup 9604", fmt.Sprintf("lookup main suppress_prefixlength %d", s.shortest+r.IntN(8)),
		fmt.Sprintf("lookup 100 suppress_prefixlength %d", s.shortest+r.IntN(8)),
		"blackhole", "unreachable", "goto 32766", "nop",
	} {
		selector := []string{"", "fwmark 1", "to " + s.prefix(r), "fwmark 1 to " + s.prefix(r)}[r.IntN(4)]
		if (action == "blackhole" || action == "unreachable" || action == "goto 32766") && selector == "" {
			selector = "to " + s.prefix(r)
		}
		batch = append(batch, fmt.Sprintf("rule add pref %d %s %s", 10+r.IntN(200), selector, action))
	}
	cmd := exec.Command("ip", s.family, "-force", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(batch, "\n") + "\n")
	_ = cmd.Run() // some lines clash; what matters is what stands
	if n := strings.Count(netns.Run(t, "ip "+s.family+" rule"), "\n"); n < 8 {
		t.Fatalf("only %d rules stand: the world is too plain to prove anything", n)
	}
}

// outcome is a fate in words.
func outcome(p routes.Path) string {
	switch p.Fate {
	case routes.Device:
		return "dev " + p.Link.Name
	case routes.Here:
		return "here"
	}
	return "nowhere"
}

func compare(t *testing.T, k *Kernel, state routes.State, addr netip.Addr, mark uint32) {
	t.Helper()
	got := kernelOutcome(t, k, state, addr, mark)
	one := netip.PrefixFrom(addr, addr.BitLen())
	paths, _ := state.Paths(policy.FamilyOf(one), ranges.Of(one))
	var possible []string
	for _, p := range paths {
		if p.Only == "" || mark != 0 {
			possible = append(possible, outcome(p))
		}
	}
	if mark == 0 && len(possible) != 1 {
		t.Errorf("%s: %d paths for all packets, want one: %v", addr, len(possible), possible)
	}
	if !slices.Contains(possible, got) {
		t.Errorf("%s with mark %d: the kernel says %s, the walk %v", addr, mark, got, possible)
	}
}

func kernelOutcome(t *testing.T, k *Kernel, state routes.State, addr netip.Addr, mark uint32) string {
	t.Helper()
	found, err := k.handle.RouteGetWithOptions(addr.AsSlice(), &netlink.RouteGetOptions{Mark: mark})
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENETUNREACH):
		return "nowhere"
	case err != nil || len(found) != 1:
		t.Fatalf("route get %s: %v %v", addr, found, err)
	}
	if found[0].Type >= unix.RTN_BLACKHOLE {
		return "nowhere" // IPv6 answers with the rejecting route instead of its error
	}
	l, ok := state.Link(found[0].LinkIndex)
	if !ok {
		t.Fatalf("route get %s: interface %d", addr, found[0].LinkIndex)
	}
	if l.Name == "lo" {
		return "here"
	}
	return "dev " + l.Name
}
