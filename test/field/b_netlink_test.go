package field

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// TestFR13: netlink loses events under load. The agent cannot have heard of a deletion in the flood,
// looks all the same, and hears again afterwards.
func TestFR13LostEvents(t *testing.T) {
	r := bench(t)
	// Longer than any patience here, and no poll for translations: what is noticed was heard.
	s := startReady(t, r, "nft", "--resync=1m", "--translation=off")
	fds := descriptors(t, s.Pid())
	var flood strings.Builder
	for i := range 10000 {
		line := fmt.Sprintf("route %%s blackhole 198.18.%d.%d/32 table 77\n", i/250, i%250)
		fmt.Fprintf(&flood, line+line, "add", "del")
	}
	for range 3 {
		before := s.State().Repairs.Routes
		s.Signal(syscall.SIGSTOP)
		r.Pod.Feed(flood.String(), "ip -batch -")
		r.Pod.Run("ip route del blackhole 10.250.0.0/16 table 9604 proto 96")
		r.Pod.Run("ip -6 route flush table 9604 proto 96")
		expectFenced(t, r, "while the agent is stopped") // the firewall is what holds
		begin := time.Now()
		s.Signal(syscall.SIGCONT)
		s.Await("the routes are back", func(d document) bool { return d.Ready && d.Repairs.Routes > before })
		t.Logf("repaired %v after 20000 lost events", time.Since(begin))
		expectHears(s, "after the flood")
	}
	if now := descriptors(t, s.Pid()); now > fds+4 {
		t.Errorf("file descriptors went from %d to %d", fds, now)
	}
}

// expectHears wants a repair, for an agent that would not look by itself.
func expectHears(s *sidecar, when string) {
	s.T.Helper()
	before, begin := s.State().Repairs.Routes, time.Now()
	s.Pod.Run("ip rule del pref 97 proto 96")
	s.Await("a repair "+when, func(d document) bool { return d.Repairs.Routes > before })
	s.T.Logf("%s an event was heard and repaired after %v", when, time.Since(begin))
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	return len(list)
}

// mainRoutes are those of the pod's own table to a network.
func mainRoutes(r *rig.Rig, network netip.Prefix) string {
	return strings.TrimSpace(r.Pod.Run("ip route show table main " + network.String()))
}

// TestFR15: route replace takes whatever has its prefix and metric. The fence's routes are in a table of their own, so a VPN that
// replaces its route all the time meets none of them, and they take nothing of the VPN's.
func TestFR15ReplacingNeighbour(t *testing.T) {
	r := bench(t)
	r.TunnelUp()
	want := mainRoutes(r, rig.Network4)
	s := startReady(t, r, "nft", "--resync=100ms")
	for range 100 {
		r.Tun.AddRoutes() // "ip route replace"
		if got := mainRoutes(r, rig.Network4); got != want {
			t.Fatalf("the VPN's route was %q and is %q", want, got)
		}
	}
	s.AwaitPasses(20)
	for family, network := range map[string]netip.Prefix{"-4": rig.Network4, "-6": rig.Network6} {
		all := strings.TrimSpace(r.Pod.Run("ip " + family + " route show table all " + network.String()))
		if strings.Count(all, "\n") != 1 || !strings.Contains(all, "blackhole") || !strings.Contains(all, "dev tun0") {
			t.Errorf("not two routes to %v:\n%s", network, all)
		}
	}
	if d := s.State(); d.Repairs.Routes != 0 || d.Phase != "Tunneled" {
		t.Errorf("phase %s, repairs %+v", d.Phase, d.Repairs)
	}
	expectAnswer(t, r, "after all replaces", rig.Node4, rig.AnswerVPN)
}

// TestFR16: IPv6 knows no metric 0, which must not make the comparison fail for ever. The metric is no setting here.
func TestFR16NothingToDo(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		r.TunnelUp() // metric 0 in IPv4, 1024 in IPv6
		s := startReady(t, r, backend, "--resync=100ms")
		s.AwaitPasses(1)
		lines := s.Changes()
		monitor := r.Start("ip", "monitor", "route", "rule", "link")
		time.Sleep(100 * time.Millisecond) // until it listens
		s.AwaitPasses(20)
		if got := monitor.Output(); got != "" || s.Changes() != lines {
			t.Errorf("20 passes with nothing to do wrote %d times; the kernel says\n%s", s.Changes()-lines, got)
		}
		r.Pod.Run("ip link set eth0 alias monitored")
		for deadline := time.Now().Add(patience); monitor.Output() == ""; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the monitor sees nothing at all")
			}
		}
	})
}

// TestFR17: libraries word the default route in many ways. In every form it is one that node traffic must not take, while one
// half of it through the tunnel is an ordinary route.
func TestFR17DefaultRoute(t *testing.T) {
	r := bench(t)
	r.Pod.IP("route del default", "route add default via 169.254.1.1 dev eth0 metric 100") // so that the tunnel's one wins
	s := startReady(t, r, "nft")
	r.Tun.DeviceUp()
	for _, c := range []struct{ route, state string }{
		{"default", "Blocked"},
		{"0.0.0.0/0", "Blocked"},
		{"0.0.0.0/1", "Tunneled"},
		{"-6 default", "Blocked"},
		{"-6 ::/0", "Blocked"},
		{"-6 8000::/1", "Tunneled"},
	} {
		t.Run(c.route, func(t *testing.T) {
			s, cidr, node := s.In(t), "10.250.0.0/16", rig.Node4
			family, prefix := "-4", c.route
			if rest, six := strings.CutPrefix(c.route, "-6 "); six {
				family, prefix, cidr, node = "-6", rest, "fd00:250::/48", rig.Node6
			}
			add := fmt.Sprintf("ip %s route add %s dev tun0 metric 7", family, prefix)
			r.Pod.Run(add)
			defer r.Pod.Run(strings.Replace(add, " add ", " del ", 1))
			s.AwaitPasses(1)
			s.Await("the state is "+c.state, func(d document) bool { return d.Ready && d.Network(cidr).State == c.state })
			if want, a := c.state == "Tunneled", r.Probe(rig.Probe{Protocol: rig.TCP, To: node}); (a.From == rig.AnswerVPN) != want {
				t.Errorf("the kernel says %v", a)
			}
		})
	}
	expectNoLeak(t, r, "default routes")
}

// TestFR20: devices come back under the same name and another index, get other names, and other devices get theirs.
// test/fence (TestTunnelUnderNewIndex) does the first twenty times.
func TestFR20RenamedDevices(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		s := startReady(t, r, backend)
		first, second := r.NewTunnel("bond0-ip6tnl0"), r.NewTunnel("bond0-ip6tnl1")
		for _, tunnel := range []*rig.Tunnel{first, second, first} {
			tunnel.Up()
			s.Await("tunneled by "+tunnel.Name, func(d document) bool {
				return d.Ready && d.Phase == "Tunneled" && d.Network("10.250.0.0/16").Interface == tunnel.Name
			})
			expectAnswer(t, r, tunnel.Name, rig.Node6, rig.AnswerVPN)
			tunnel.Down()
			s.Await("blocked", func(d document) bool { return d.Ready && d.Phase == "Blocked" })
		}
		r.ResetCounters()
		r.Pod.IP("link set eth0 down", "link set eth0 name net0", "link set net0 up", "route add 169.254.1.1 dev net0 scope link",
			"route add default via 169.254.1.1 dev net0")
		r.Pod.Run("ip -6 route replace default via fe80::1 dev net0")
		s.AwaitPasses(2)
		s.AwaitReady()
		all := ways("net0", rig.Node4, rig.Node6)
		for i, a := range r.ProbeAll(all) {
			if a.Err == nil {
				t.Errorf("renamed: %v: answered by %v", all[i], a)
			}
		}
		r.Pod.IP("link add eth0 type veth peer name eth0-peer", "link set eth0 up")
		s.Await("both are fenced", func(d document) bool {
			return d.Ready && strings.Count(r.Pod.Run("ip link show group 9604"), "mtu") == 2
		})
		expectNoLeak(t, r, "renamed")
	})
}

// TestFR21: foreign routes stay, in our own table and with our own metric too; ours come back. (test/fence plants more kinds of foreign
// objects in TestTamper and TestCleanup.)
func TestFR21ForeignRoutesStay(t *testing.T) {
	r := bench(t)
	foreign := []string{
		"blackhole 10.99.0.0/16 proto static", "blackhole 10.99.0.0/16 table 9604 proto static metric 2048",
		"blackhole 10.98.0.0/16 table 9604 proto 77 metric 2048",
	}
	for _, f := range foreign {
		r.Pod.Run("ip route add " + f)
	}
	s := startReady(t, r, "nft")
	for range 10 {
		_, _ = r.Pod.Try("ip route del blackhole 10.250.0.0/16 table 9604 proto 96") // it may not be back yet
		time.Sleep(100 * time.Millisecond)
	}
	s.Await("the repairs are over", func(d document) bool { return d.Ready && d.Repairs.Routes > 0 })
	s.AwaitPasses(2)
	expectForeign := func(when string) {
		t.Helper()
		for _, f := range foreign {
			if got, _ := r.Pod.Try("ip route show table all " + strings.Replace(f, "blackhole", "type blackhole exact", 1)); !strings.Contains(got, "10.9") {
				t.Errorf("%s: %s is gone", when, f)
			}
		}
	}
	expectForeign("after ten repairs")
	if got := r.Pod.Run("ip route show table 9604 proto 96"); !strings.Contains(got, "blackhole 10.250.0.0/16") {
		t.Errorf("ours is not back:\n%s", got)
	}
	s.Stop()
	clean(t, r)
	expectForeign("after cleanup")
}
