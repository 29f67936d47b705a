package replies

import (
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

func node(text string) netip.Addr { return netip.MustParseAddr(text) }

// foreign are rules of somebody else in the very chains that the marks need.
const foreign = `*mangle
-A OUTPUT -d 192.0.2.1/32 -j MARK --set-xmark 0x7/0xff
-A PREROUTING -p udp -m udp --dport 9 -j CONNMARK --set-xmark 0x70000/0xf0000
COMMIT
`

// TestTogglingLeavesNoTrace: on, off and on again; off is what off was before, cleanup gives back what there was at first, and an
// agent with nothing to do writes nothing.
func TestTogglingLeavesNoTrace(t *testing.T) {
	for name, plant := range map[string]func(*bench){
		"nothing there": func(*bench) {},
		"foreign rules": func(b *bench) {
			b.Pod.Feed(foreign, "iptables-"+b.backend+"-restore --noflush -w 5")
			b.Pod.Feed(strings.ReplaceAll(foreign, "192.0.2.1/32", "2001:db8::1/128"), "ip6tables-"+b.backend+"-restore --noflush -w 5")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachBackend(t, rig.Options{}, func(t *testing.T, b *bench) {
				plant(b)
				b.loadLegacy()
				first := b.Snapshot()
				b.run("--replies=off")
				off := b.Snapshot()
				b.run("--replies=on")
				b.expectRest()
				if b.Snapshot() == off {
					t.Error("replies do not show")
				}
				b.run("--replies=off")
				expectSame(t, "off again", off, b.Snapshot())
				b.run("--replies=on")
				b.clean()
				expectSame(t, "cleanup", first, b.Snapshot())
			})
		})
	}
}

// loadLegacy makes the tables of the legacy backend, which stay as long as the namespace once they were used.
func (b *bench) loadLegacy() {
	if b.backend != "legacy" {
		return
	}
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		for _, table := range []string{"filter", "mangle"} {
			b.Pod.Run(program + " -w 5 -t " + table + " -S")
		}
	}
}

// expectRest wants two more read-backs without a write.
func (b *bench) expectRest() {
	b.t.Helper()
	seen, writes := b.agent.State().VerifiedAt, b.agent.Changes()
	for range 2 {
		seen = b.agent.Await("another read-back", func(d shipped.Document) bool { return d.VerifiedAt.After(seen) }).VerifiedAt
	}
	if now := b.agent.Changes(); now != writes {
		b.t.Errorf("%d writes with nothing to do:\n%s", now-writes, b.agent.Output())
	}
}

// TestNothingLeaksMeanwhile: while replies go on and off, the tunnel comes and goes, agents are killed and the seed node asks and asks,
// a crowd of senders in and behind the pod gets nothing out. An agent that starts from nothing fences as soon as any.
func TestNothingLeaksMeanwhile(t *testing.T) {
	eachBackend(t, rig.Options{Forwarding: true}, func(t *testing.T, b *bench) {
		b.run("--replies=off")
		before := b.begun()
		h := b.Hammer(rig.HammerRate / 2)
		asking := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ask := range asking {
				_ = ask
				b.ProbeAll(b.questions())
			}
		}()
		for _, replies := range []string{"on", "off", "on"} {
			asking <- struct{}{}
			b.run("--replies=" + replies)
			b.TunnelUp()
			b.expectReply(replies)
			b.TunnelDown()
			b.agent.Signal(syscall.SIGKILL)
		}
		close(asking)
		<-done
		totals := h.Stop()
		if after := b.begun(); after != before {
			t.Errorf("%s packets of new connections at the seed side, were %s: %v", after, before, totals)
		}
		if totals.Attempts < 500 {
			t.Errorf("the hammer tried %d times only", totals.Attempts)
		}
	})
}

// expectReply asks once, and awaits what the flag says.
func (b *bench) expectReply(replies string) {
	b.t.Helper()
	if replies == "on" {
		b.expectAnswers("replies on", b.questions())
		return
	}
	b.expectSilence("replies off", b.questions())
}

// TestConnectionLivesThroughRepairs: a connection that came in survives what is repaired around it: it is not one of those that ran
// outside of the tunnel.
func TestConnectionLivesThroughRepairs(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, b *bench) {
		b.run("--replies=on")
		c := b.talk()
		for _, act := range []string{"ip rule del pref 97", "ip rule del pref 95", "iptables-" + b.backend + " -w 5 -t mangle -F ROUTEFENCE-REPLY"} {
			writes := b.agent.Changes()
			b.Pod.Run(act)
			b.agent.Await(act+" is repaired", func(shipped.Document) bool { return b.agent.Changes() > writes })
			if err := c.say(); err != nil {
				t.Errorf("after %s: %v", act, err)
			}
		}
	})
}

// TestLackingConnmark: a kernel without the means answers nobody and says so; the fence stands.
func TestLackingConnmark(t *testing.T) {
	t.Parallel()
	b := newBench(t, rig.Options{}, "nft")
	for _, replies := range []string{"auto", "on"} {
		b.stop()
		b.agent = shipped.Run(b.t, b.Pod, "sh", "-ec", withoutConnmark, "sh", shipped.Binary, "run", shipped.BothNetworks, "--firewall=nft", "--replies="+replies, "--resync=1s")
		b.agent.Await("the agent is ready", func(d shipped.Document) bool { return d.Ready })
		if replies == "auto" {
			b.Pod.IP("addr add 10.250.0.99/32 dev eth0") // the need may come long after the backend has been proven
		}
		d := b.agent.Await("the lack is said", func(d shipped.Document) bool {
			return d.Ready && strings.Contains(strings.Join(d.Firewall.Degraded, "; "), "no conntrack or connmark")
		})
		if d.Answered() != "" {
			t.Errorf("%s: replies for %q", replies, d.Answered())
		}
	}
	b.expectSilence("no connmark", b.questions())
	b.expectFenced("no connmark", "")
}

// withoutConnmark runs what follows with iptables programs that know nothing of connmark.
const withoutConnmark = `dir=$(mktemp -d -p "$(dirname "$XTABLES_LOCKFILE")")
for p in iptables ip6tables; do
	cat >$dir/$p-nft-restore <<END
#!/bin/sh
rules=\$(cat)
case "\$rules" in *connmark*) echo "Extension connmark is not supported, missing kernel module?" >&2; exit 2;; esac
printf '%s\n' "\$rules" | $(command -v $p-nft-restore) "\$@"
END
	chmod +x $dir/$p-nft-restore
done
PATH=$dir:$PATH exec "$@"`

// settle is ample for what was sent to arrive.
const settle = 50 * time.Millisecond
