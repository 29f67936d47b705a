package replies

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

const (
	// question is the port in the pod that a kubelet would probe.
	question = 8443
	// ample is the patience with what must be answered, brief that with what must not.
	ample = 5 * time.Second
	brief = 400 * time.Millisecond
	// bothHosts is the seed node in both networks that probes the pod.
	bothHosts = "--host-ip=10.250.0.7,fd00:250::7"
)

// bench is a rig with a pod that listens.
type bench struct {
	*rig.Rig
	t       *testing.T
	backend string
	agent   *shipped.Agent
}

func newBench(t *testing.T, o rig.Options, backend string) *bench {
	t.Helper()
	b := &bench{Rig: rig.New(t, o), t: t, backend: backend}
	b.listen(b.Pod, rig.Pod4, rig.Pod6)
	if b.Client != nil {
		b.listen(b.Client, rig.Client4, rig.Client6)
	}
	b.Net.Feed(beginnings, "nft -f -")
	b.Net.Sysctl("ipv4/ping_group_range", "0 2147483647")
	return b
}

// beginnings counts at the seed side what the pod sends to node networks and is no answer to a question: what is not from the
// port that was asked, and echo requests. Neighbour discovery is not counted, a reset neither: it answers.
const beginnings = `table netdev rf_begun {
	counter begun {
	}
	chain in {
		type filter hook ingress device "cali0" priority -400
		ip daddr { 10.250.0.0/16, 10.1.5.0/24 } meta l4proto { tcp, udp } th sport != 8443 counter name begun
		ip daddr { 10.250.0.0/16, 10.1.5.0/24 } icmp type echo-request counter name begun
		ip6 daddr fd00:250::/48 meta l4proto { tcp, udp } th sport != 8443 counter name begun
		ip6 daddr fd00:250::/48 icmpv6 type echo-request counter name begun
	}
}
`

// begun is how many packets of connections begun in the pod or behind it have arrived at the seed side.
func (b *bench) begun() string {
	b.t.Helper()
	text := b.Net.Run("nft list counter netdev rf_begun begun")
	_, rest, _ := strings.Cut(text, "packets ")
	count, _, found := strings.Cut(rest, " ")
	if !found {
		b.t.Fatalf("no counter in %q", text)
	}
	return count
}

func (b *bench) listen(n *rig.Namespace, addrs ...netip.Addr) {
	b.t.Helper()
	for _, a := range addrs {
		at := netip.AddrPortFrom(a, question)
		err := n.Do(func() error {
			l, err := net.Listen("tcp", at.String())
			if err != nil {
				return err
			}
			b.t.Cleanup(func() { l.Close() })
			go answerTCP(l)
			c, err := net.ListenPacket("udp", at.String())
			if err != nil {
				return err
			}
			b.t.Cleanup(func() { c.Close() })
			go answerUDP(c)
			return nil
		})
		if err != nil {
			b.t.Fatalf("listen on %s: %v", at, err)
		}
	}
}

func answerTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = c.Write([]byte("POD"))
			_, _ = io.Copy(c, c) // for those who want to talk on
		}()
	}
}

func answerUDP(c net.PacketConn) {
	buffer := make([]byte, 64)
	for {
		_, from, err := c.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte("POD"), from)
	}
}

// run starts the agent and waits until it is ready.
func (b *bench) run(args ...string) shipped.Document {
	b.t.Helper()
	b.stop()
	b.agent = shipped.StartReady(b.t, b.Pod, b.backend, args...)
	return b.agent.State()
}

func (b *bench) stop() {
	if b.agent != nil {
		b.agent.Stop()
		b.agent = nil
	}
}

// questions are all ways in which a seed node asks the pod.
func (b *bench) questions() []rig.Probe {
	var out []rig.Probe
	for node, pod := range map[netip.Addr]netip.Addr{rig.Node4: rig.Pod4, rig.Node6: rig.Pod6} {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP, rig.ICMP} {
			out = append(out, rig.Probe{From: b.Net, Source: node, Protocol: protocol, To: pod, Port: question})
		}
	}
	return out
}

// expectAnswers asks in every way, and first of all for the pod's hardware address.
func (b *bench) expectAnswers(when string, questions []rig.Probe) {
	b.t.Helper()
	b.Net.Run("ip neigh flush dev cali0")
	for i := range questions {
		questions[i].Timeout = ample
	}
	for i, a := range b.ProbeAll(questions) {
		if a.Err != nil {
			b.t.Errorf("%s: %v: got %v, want an answer", when, questions[i], a)
		}
	}
}

func (b *bench) expectSilence(when string, questions []rig.Probe) {
	b.t.Helper()
	for i := range questions {
		questions[i].Timeout = brief
	}
	for i, a := range b.ProbeAll(questions) {
		if a.Err == nil {
			b.t.Errorf("%s: %v: answered by %v", when, questions[i], a)
		}
	}
}

// expectFenced begins connections to the very node that asks, from the pod, bound to eth0 and not, and from behind it. Those of the
// pod must be refused at once, but for pings, which have no way to be told; with a tunnel, want is who answers those that are free
// to choose.
func (b *bench) expectFenced(when, want string) {
	b.t.Helper()
	var ways []rig.Probe
	for _, node := range []netip.Addr{rig.Node4, rig.Node6} {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP, rig.ICMP} {
			free := rig.Probe{From: b.Pod, Protocol: protocol, To: node, Timeout: ample}
			bound, forwarded := free, free
			bound.Device, forwarded.From = "eth0", b.Client
			ways = append(ways, free, bound)
			if b.Client != nil {
				ways = append(ways, forwarded)
			}
		}
	}
	before := b.begun()
	for i := range ways {
		if (ways[i].Protocol == rig.ICMP || ways[i].From == b.Client) && want == "" {
			ways[i].Timeout = brief
		}
	}
	for i, a := range b.ProbeAll(ways) {
		p := ways[i]
		switch {
		case p.Device == "" && want != "":
			if a.From != want {
				b.t.Errorf("%s: %v: got %v, want %s", when, p, a, want)
			}
		case a.Err == nil:
			b.t.Errorf("%s: %v: answered by %v", when, p, a)
		case p.Protocol != rig.ICMP && p.From == b.Pod && a.Took > time.Second:
			b.t.Errorf("%s: %v: %v after %v, want a refusal at once", when, p, a, a.Took)
		}
	}
	if after := b.begun(); after != before {
		b.t.Errorf("%s: packets of new connections at the seed side: %s, were %s", when, after, before)
	}
}

// expectOpen shows that a leak would be seen: it begins connections without a fence.
func (b *bench) expectOpen() {
	b.t.Helper()
	for _, p := range []rig.Probe{
		{Protocol: rig.TCP, To: rig.Node4}, {Protocol: rig.UDP, To: rig.Node6}, {Protocol: rig.ICMP, To: rig.Node4}, {Protocol: rig.ICMP, To: rig.Node6},
	} {
		p.Timeout = ample
		before := b.begun()
		if a := b.Probe(p); a.From != rig.AnswerNet || b.begun() == before {
			b.t.Errorf("without a fence: %v: got %v, the counter is at %s", p, a, b.begun())
		}
	}
}

func (b *bench) clean() {
	b.t.Helper()
	b.stop()
	if got := b.Exec(shipped.Binary, "cleanup"); got.Exit != 0 {
		b.t.Errorf("cleanup exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
}

// Snapshot leaves out what ip says of namespaces that end meanwhile, as those of other benches do.
func (b *bench) Snapshot() string {
	return strings.ReplaceAll(b.Rig.Snapshot(), "Error: Peer netns reference is invalid.\n", "")
}

// expectSame shows where two snapshots part.
func expectSame(t *testing.T, when, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("%s: line %d is %q, was %q", when, i, b[i], a[i])
			return
		}
	}
	t.Errorf("%s: %s", when, fmt.Sprintf("%d lines, were %d", len(b), len(a)))
}
