package fence

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// holdPort is where the benches' holders listen.
const holdPort = 4321

// hold accepts connections in a namespace, echoes what comes and never ends them by itself.
func hold(t *testing.T, n *rig.Namespace) {
	t.Helper()
	var l net.Listener
	if err := n.Do(func() (err error) { l, err = net.Listen("tcp", ":4321"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buffer := make([]byte, 64)
				for {
					n, err := c.Read(buffer)
					if err != nil {
						return
					}
					_, _ = c.Write(buffer[:n]) // the next read tells
				}
			}()
		}
	}()
}

// dial opens a connection from the pod to the node.
func dial(t *testing.T, r *rig.Rig, to netip.Addr) net.Conn {
	t.Helper()
	return dialFrom(t, r.Pod, to)
}

func dialFrom(t *testing.T, n *rig.Namespace, to netip.Addr) net.Conn {
	t.Helper()
	var c net.Conn
	err := n.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(to, holdPort).String(), 5*time.Second)
		return err
	})
	if err != nil {
		t.Fatalf("connect to %s: %v", to, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echo reports whether the other side still answers.
func echo(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second)) // an error shows in what follows
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// TestConnectionsOutsideOfTheTunnelEnd: what ran over the seed network when the fence goes up ends at once and with an error,
// idle or not, also behind a rule that accepts all that is established. Nobody has to delete a pod first, as step 7 of
// gardener/gardener#9604 does.
func TestConnectionsOutsideOfTheTunnelEnd(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		r.Pod.Run("iptables-" + backend + " -I OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT")
		r.Pod.Run("ip6tables-" + backend + " -I OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT")
		hold(t, r.Net)
		ended := make(chan error)
		for _, to := range []netip.Addr{rig.Node4, rig.Node6} {
			c := dial(t, r, to)
			if err := echo(c); err != nil {
				t.Fatalf("%s before the fence: %v", to, err)
			}
			_ = c.SetDeadline(time.Time{})
			go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
		}
		s := startReady(t, r, backend)
		stood := time.Now()
		for _, to := range []netip.Addr{rig.Node4, rig.Node6} {
			if !strings.Contains(s.Output(), `"`+to.String()+`"`) {
				t.Errorf("the log does not name %s: %s", to, s.Tail())
			}
		}
		for range 2 {
			select {
			case err := <-ended:
				if !errors.Is(err, syscall.ECONNABORTED) {
					t.Errorf("ended with %v, want ECONNABORTED", err)
				}
				t.Logf("ended %v after the fence was seen to stand", time.Since(stood))
			case <-time.After(5 * time.Second):
				t.Error("a connection over the seed network hangs")
			}
		}
	})
}

// TestConnectionsInTheTunnelStay: the fence going up does not touch them, nor does the tunnel losing its routes for less than the grace.
func TestConnectionsInTheTunnelStay(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		hold(t, r.VPN)
		r.TunnelUp()
		v4, v6 := dial(t, r, rig.Node4), dial(t, r, rig.Node6)
		s := startReady(t, r, backend, "--tunnel-grace=1m")
		s.AwaitPhase("Tunneled")
		for _, when := range []string{"fence up", "routes back"} {
			for _, c := range []net.Conn{v4, v6} {
				if err := echo(c); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
			r.Tun.RemoveRoutes()
			s.AwaitPhase("Blocked")
			r.Tun.AddRoutes()
			s.AwaitPhase("Tunneled")
		}
	})
}

// TestConnectionsOfALostTunnelEnd: a tunnel that stays away, with its routes or with its device, takes its connections along: they end
// with an error, and packets of theirs go nowhere. Others are dialled once it is back.
func TestConnectionsOfALostTunnelEnd(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		hold(t, r.VPN)
		r.TunnelUp()
		s, rounds := startReady(t, r, backend), 0
		for how, lose := range map[string]struct{ away, back func() }{
			"routes": {func() { r.Tun.RemoveRoutes() }, func() { r.Tun.AddRoutes() }},
			"device": {r.TunnelDown, func() { r.TunnelUp() }},
		} {
			s.AwaitPhase("Tunneled")
			ended := make(chan error)
			for _, to := range []netip.Addr{rig.Node4, rig.Node6} {
				c := dial(t, r, to)
				if err := echo(c); err != nil {
					t.Fatalf("%s before: %v", to, err)
				}
				_ = c.SetDeadline(time.Time{})
				go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
			}
			r.ResetCounters()
			begin := time.Now()
			lose.away()
			for range 2 {
				select {
				case err := <-ended:
					if !errors.Is(err, syscall.ECONNABORTED) {
						t.Errorf("%s gone: ended with %v, want ECONNABORTED", how, err)
					}
					t.Logf("%s gone: ended after %v", how, time.Since(begin))
				case <-time.After(10 * time.Second):
					t.Errorf("%s gone: a connection hangs", how)
				}
			}
			expectNoLeak(t, r, how+" gone")
			rounds++ // of whatever order
			s.Await("the log says so", func(document) bool {
				return strings.Count(s.Output(), `"msg":"ended connections to nodes whose tunnel is gone"`) >= rounds
			})
			lose.back()
		}
	})
}

// TestForwardedConnectionsOutsideOfTheTunnelEnd: what the pod forwards over the seed network when the fence goes up gets no packet out
// any more, also behind a rule that accepts all that is established, and conntrack forgets it. What it forwards into the tunnel goes on.
func TestForwardedConnectionsOutsideOfTheTunnelEnd(t *testing.T) {
	inTunnel := netip.MustParseAddr("10.251.0.7")
	o := rig.Options{Forwarding: true, Networks: []netip.Prefix{rig.Network4, rig.Network6, netip.MustParsePrefix("10.251.0.0/16")}}
	eachBackend(t, o, func(t *testing.T, r *rig.Rig, backend string) {
		for _, program := range []string{"iptables-", "ip6tables-"} {
			r.Pod.Run(program + backend + " -I FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT")
		}
		hold(t, r.Net)
		hold(t, r.VPN)
		r.TunnelUp(netip.MustParsePrefix("10.251.0.0/16"))
		outside := []net.Conn{dialFrom(t, r.Client, rig.Node4), dialFrom(t, r.Client, rig.Node6)}
		inside := dialFrom(t, r.Client, inTunnel)
		for _, c := range append(outside, inside) {
			if err := echo(c); err != nil {
				t.Fatalf("%v before the fence: %v", c.RemoteAddr(), err)
			}
		}
		expectTracked(t, r, "before the fence", true, rig.Node4, rig.Node6, inTunnel)
		s := start(t, r, bothNetworks+",10.251.0.0/16", "--firewall="+backend)
		s.Await("the agent is ready", func(d document) bool { return d.Ready })
		expectTracked(t, r, "fenced", false, rig.Node4, rig.Node6)
		expectTracked(t, r, "fenced", true, inTunnel)
		if !strings.Contains(s.Output(), `"msg":"forgot what forwarded connections`) {
			t.Errorf("the log does not say so: %s", s.Tail())
		}
		r.ResetCounters()
		for _, c := range outside {
			_ = c.SetDeadline(time.Now().Add(brief)) // an error shows in what follows
			_, _ = c.Write([]byte("?"))
			if n, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%v: still answers (%d bytes)", c.RemoteAddr(), n)
			}
		}
		expectNoLeak(t, r, "forwarded connections")
		if err := echo(inside); err != nil {
			t.Errorf("in the tunnel: %v", err)
		}
	})
}

// expectTracked asks conntrack for connections of the client.
func expectTracked(t *testing.T, r *rig.Rig, when string, want bool, peers ...netip.Addr) {
	t.Helper()
	for _, to := range peers {
		family := netlink.InetFamily(unix.AF_INET)
		if to.Is6() {
			family = unix.AF_INET6
		}
		err := r.Pod.Do(func() error {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			found := slices.ContainsFunc(flows, func(f *netlink.ConntrackFlow) bool { return f.Forward.DstIP.Equal(to.AsSlice()) })
			if err == nil && found != want {
				t.Errorf("%s: %s is tracked: %v", when, to, found)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
