package rtnl

import (
	"net/netip"
	"testing"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/test/netns"
)

// pod is a network namespace shaped like a pod: eth0 with a default route, tun0 as the VPN.
func pod(t *testing.T) *Kernel {
	t.Helper()
	netns.Enter(t)
	for _, line := range []string{
		"ip link add eth0 type veth peer name far0",
		"ip link add tun0 type veth peer name far1",
		"ip addr add 10.1.178.85/32 dev eth0",
		"ip addr add 192.168.123.1/24 dev tun0",
		// Link-local addresses come when they like, and would differ between two looks.
		"ip link set eth0 addrgenmode none", "ip link set far0 addrgenmode none", "ip link set tun0 addrgenmode none", "ip link set far1 addrgenmode none",
		"ip link set far0 up", "ip link set far1 up", "ip link set eth0 up", "ip link set tun0 up",
		"ip route add 169.254.1.1 dev eth0", "ip route add default via 169.254.1.1 dev eth0",
		"ip -6 addr add fd00:10:1::85/64 dev eth0 nodad", "ip -6 route add default via fd00:10:1::1 dev eth0",
	} {
		netns.Run(t, line)
	}
	netns.AwaitLocal(t, func(line string) string { return netns.Run(t, line) }, "eth0", "fd00:10:1::85")
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func podPolicy() policy.Policy {
	return policy.New(
		[]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16"), netip.MustParsePrefix("fd00:250::/48")},
		[]netip.Prefix{netip.MustParsePrefix("10.250.9.0/24")},
		policy.Patterns{"eth0"}, policy.Patterns{"tun0", "bond0*"})
}

func diff(t *testing.T, k *Kernel, p policy.Policy, ts ...policy.Translation) []routes.Change {
	t.Helper()
	s, err := k.List()
	if err != nil {
		t.Fatal(err)
	}
	return routes.Diff(routes.Desired(p, ts, s), s)
}

func TestInstallIsIdempotentAndRemoveRestores(t *testing.T) {
	k := pod(t)
	netns.Run(t, "ip link set eth0 group 7")
	netns.Run(t, "ip rule add pref 96 from 10.9.9.9 lookup 100")
	netns.Run(t, "ip route add blackhole 10.99.0.0/16 table 9604 proto static")
	show := func() string {
		out := ""
		for _, line := range []string{"ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all", "ip -d link show eth0"} {
			out += netns.Run(t, line)
		}
		return out
	}
	before := show()
	ts := policy.Translation{From: netip.MustParsePrefix("10.250.0.0/17"), To: netip.MustParsePrefix("242.0.0.0/17")}
	if err := k.Apply(diff(t, k, podPolicy(), ts)); err != nil {
		t.Fatal(err)
	}
	if again := diff(t, k, podPolicy(), ts); len(again) != 0 {
		t.Errorf("second pass would write %v\n%s", again, show())
	}
	t.Log(show())
	for range 2 {
		s, err := k.List()
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Apply(routes.Remove(s)); err != nil {
			t.Fatal(err)
		}
		if after := show(); after != before {
			t.Errorf("not as before:\n%s\nbut:\n%s", before, after)
		}
	}
}
