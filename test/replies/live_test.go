package replies

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/firewall/xtables"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
	"go.uber.org/zap"
)

// talk is a connection from the seed node to the pod.
type talk struct{ net.Conn }

// talk begins one.
func (b *bench) talk() talk {
	b.t.Helper()
	var c net.Conn
	err := b.Net.Do(func() (err error) {
		d := net.Dialer{Timeout: ample, LocalAddr: net.TCPAddrFromAddrPort(addrPort(rig.Node4, 0))}
		c, err = d.Dial("tcp", addrPort(rig.Pod4, question).String())
		return err
	})
	if err != nil {
		b.t.Fatalf("ask the pod: %v", err)
	}
	b.t.Cleanup(func() { c.Close() })
	greeting := make([]byte, 3)
	_ = c.SetDeadline(time.Now().Add(ample))
	if _, err := c.Read(greeting); err != nil || string(greeting) != "POD" {
		b.t.Fatalf("the pod says %q: %v", greeting, err)
	}
	return talk{c}
}

// say sends a word and waits for its echo.
func (c talk) say() error {
	_ = c.SetDeadline(time.Now().Add(ample))
	if _, err := c.Write([]byte("hello")); err != nil {
		return fmt.Errorf("say: %w", err)
	}
	heard := make([]byte, 5)
	if _, err := c.Read(heard); err != nil {
		return fmt.Errorf("hear: %w", err)
	}
	return nil
}

// fence puts up the fence with replies on by the product's own edges: without an agent, nobody ends the connections that are there.
func (b *bench) fence() {
	b.t.Helper()
	p := policy.New([]netip.Prefix{rig.Network4, rig.Network6}, nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0"}).
		Answer(func(netip.Prefix) bool { return true })
	err := b.Pod.Do(func() error {
		k, err := rtnl.New()
		if err != nil {
			return err
		}
		s, err := k.List()
		if err != nil {
			return err
		}
		if err := k.Apply(routes.Diff(routes.Desired(p, nil, s), s)); err != nil {
			return err
		}
		x := xtables.New(b.backend, nfnetlink.Conn{}, zap.NewNop())
		chains, err := x.List()
		if err != nil {
			return err
		}
		return x.Apply(firewall.Diff(firewall.Desired(p, firewall.Options{Lacks: chains.Lacks, Links: []string{"lo", "eth0"}}), chains))
	})
	if err != nil {
		b.t.Fatalf("put up the fence: %v", err)
	}
}

// outward is a connection from the pod to a node's address in a namespace, and its far end.
func (b *bench) outward(to *rig.Namespace) (near, far net.Conn) {
	b.t.Helper()
	var l net.Listener
	err := to.Do(func() (err error) { l, err = net.Listen("tcp", addrPort(rig.Node4, 10252).String()); return err })
	if err != nil {
		b.t.Fatalf("listen at the node: %v", err)
	}
	defer l.Close()
	if err := b.Pod.Do(func() (err error) { near, err = net.DialTimeout("tcp", l.Addr().String(), ample); return err }); err != nil {
		b.t.Fatalf("connect to the node: %v", err)
	}
	if far, err = l.Accept(); err != nil {
		b.t.Fatalf("accept at the node: %v", err)
	}
	b.t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// TestAnswersToTheTunnelStayFenced: what came in through the VPN is answered through the VPN or not at all, even with the tunnel gone
// and the routing fence deleted.
func TestAnswersToTheTunnelStayFenced(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, b *bench) {
		b.fence()
		b.TunnelUp()
		var l net.Listener
		err := b.Pod.Do(func() (err error) { l, err = net.Listen("tcp", addrPort(rig.Pod4, 10253).String()); return err })
		if err != nil {
			t.Fatalf("listen in the pod: %v", err)
		}
		defer l.Close()
		err = b.VPN.Do(func() error {
			d := net.Dialer{Timeout: ample, LocalAddr: net.TCPAddrFromAddrPort(addrPort(rig.Node4, 0))}
			c, err := d.Dial("tcp", l.Addr().String())
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			return err
		})
		if err != nil {
			t.Fatalf("ask through the tunnel: %v", err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatalf("accept in the pod: %v", err)
		}
		defer c.Close()
		b.TunnelDown()
		b.Pod.IP("rule del pref 97", "rule del pref 96", "rule del pref 95")
		b.ResetCounters()
		_, _ = c.Write([]byte("answer"))
		time.Sleep(settle)
		if got := b.SeedCount(); got.Total() != 0 {
			t.Errorf("the seed network saw %+v", got)
		}
	})
}

func addrPort(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// TestOldConnectionIsNoReply: a connection from the pod to the node that ran before the fence does not become one that came in, just
// because the node speaks first once conntrack looks.
func TestOldConnectionIsNoReply(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, b *bench) {
		near, far := b.outward(b.Net)
		b.fence()
		time.Sleep(settle)
		before := b.begun()
		_, _ = far.Write([]byte("?"))
		time.Sleep(settle)
		if _, err := near.Write([]byte("!")); err == nil {
			_ = near.SetReadDeadline(time.Now().Add(ample))
			_, err = io.Copy(io.Discard, near)
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the old connection goes on: %v", err)
			}
		}
		if after := b.begun(); after != before {
			t.Errorf("packets of the old connection at the seed side: %s, were %s", after, before)
		}
	})
}

// TestLostTunnelTakesItsOwn: what the pod had dialled through the tunnel ends when that is gone, and what came in over eth0 from the same
// node, and is answered there, goes on.
func TestLostTunnelTakesItsOwn(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, b *bench) {
		b.TunnelUp()
		b.run("--replies=on")
		b.agent.AwaitPhase("Tunneled")
		near, _ := b.outward(b.VPN)
		c := b.talk()
		b.TunnelDown()
		_ = near.SetDeadline(time.Now().Add(ample))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNABORTED) {
			t.Errorf("dialled through the tunnel: %v, want ECONNABORTED", err)
		}
		b.agent.Await("all that was to be ended has been", func(shipped.Document) bool { return strings.Contains(b.agent.Output(), "whose tunnel is gone") })
		if err := c.say(); err != nil {
			t.Errorf("came in over eth0: %v", err)
		}
	})
}
