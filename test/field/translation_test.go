package field

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// translated is what NETMAP makes of the bench's IPv4 node network.
const translated = "242.0.0.0/16"

// rewriting is one way in which a VPN container has node addresses translated.
type rewriting struct {
	backend string
	// owner limits the rule to senders of the group vpnGroup.
	owner bool
	// target is the end of the rule; from is what it takes.
	from, target string
	// state is what the network must be said to be translated to.
	state string
}

func netmap(backend string, owner bool) rewriting {
	return rewriting{backend, owner, "10.250.0.0/16", "NETMAP --to " + translated, translated}
}

func (w rewriting) String() string {
	if w.owner {
		return "with an owner match"
	}
	return "without an owner match"
}

// rule adds (-A) or deletes (-D) the rule.
func (w rewriting) rule(r *rig.Rig, action string) {
	owner := ""
	if w.owner {
		owner = fmt.Sprintf(" -m owner --gid-owner %d", vpnGroup)
	}
	r.Pod.Run(fmt.Sprintf("iptables-%s -w 5 -t nat %s OUTPUT -d %s%s -j %s", w.backend, action, w.from, owner, w.target))
}

// TestTranslation is issue 3, item 1: translated node networks, on either backend for the nat rules and for the fence, with
// and without an owner match, the rules first or the agent first. One bench lives through all orders of a pair of backends.
func TestTranslation(t *testing.T) {
	eachPair(t, func(t *testing.T, r *rig.Rig, nat, fence string) {
		expectTranslationMatters(t, r, nat)
		for _, owner := range []bool{true, false} {
			for _, first := range []string{"rules", "agent"} {
				l := &life{t: t, r: r, w: netmap(nat, owner), fence: fence, senders: newSenders(t, r)}
				t.Run(fmt.Sprintf("%v, %s first", l.w, first), func(t *testing.T) { l.t = t; l.live(first) })
			}
		}
	})
}

// eachPair runs a test for every pair of a backend for the nat rules and one for the fence, all at the same time.
func eachPair(t *testing.T, test func(t *testing.T, r *rig.Rig, nat, fence string)) {
	t.Parallel()
	for _, nat := range backends {
		for _, fence := range backends {
			t.Run("nat "+nat+", fence "+fence, func(t *testing.T) {
				t.Parallel()
				r := rig.New(t, rig.Options{})
				loadLegacy(r)
				test(t, r, nat, fence)
			})
		}
	}
}

// expectTranslationMatters: without a fence the seed network gets translated packets, so that its zero means something.
func expectTranslationMatters(t *testing.T, r *rig.Rig, nat string) {
	t.Helper()
	w := netmap(nat, false)
	w.rule(r, "-A")
	expectAnswer(t, r, "without a fence", rig.Node4, rig.AnswerNet)
	if got := r.SeedCount(); got.Translated == 0 {
		t.Errorf("without a fence the seed network saw %+v", got)
	}
	w.rule(r, "-D")
	r.ResetCounters()
}

// life is that of one agent: rules come, the tunnel goes and comes, rules go, cleanup.
type life struct {
	t       *testing.T
	r       *rig.Rig
	w       rewriting
	fence   string
	senders *senders
	s       *sidecar
}

func (l *life) live(first string) {
	l.senders.t = l.t
	if first == "rules" {
		l.w.rule(l.r, "-A")
	}
	bare := snapshot(l.r)
	l.up()
	l.s = startReady(l.t, l.r, l.fence)
	if first == "agent" {
		l.expectPlain("before the rules")
		l.w.rule(l.r, "-A")
	}
	l.expectCarriedSoon(map[string]string{"rules": "agent", "agent": "rules"}[first]) // whichever came last
	stream := l.senders.stream(vpnGroup, rig.Node4)
	l.expectTranslated("tunnel up")
	l.expectProcessCarried()
	l.s.AwaitPasses(1)
	stream.expectNeverCut("while the tunnel was up")
	l.r.TunnelDown()
	l.expectStopped("tunnel gone")
	l.up()
	l.expectCarriedSoon("tunnel")
	if first == "agent" {
		l.w.rule(l.r, "-D")
		l.expectPlain("after the rules")
	}
	l.end(bare, first)
}

// up brings the tunnel up as Gardener's new VPN has it, IPv4 translated and IPv6 as of old with real addresses.
func (l *life) up() { l.r.TunnelUp(rig.Translated, rig.Network6) }

// expectCarriedSoon measures from now until the VPN carries the group's packets.
func (l *life) expectCarriedSoon(after string) {
	l.t.Helper()
	// Twice what is promised: the machine may be busy with other tests.
	const limit = 2 * 2 * time.Second
	begin, first := time.Now(), rig.Answer{}
	for {
		a := l.senders.dial(vpnGroup, rig.Node4, "", brief)
		if first == (rig.Answer{}) {
			first = a
		}
		if a.From == rig.AnswerVPN {
			break
		}
		if time.Since(begin) > patience {
			l.t.Fatalf("not carried %v after the %s: %v\n%s", patience, after, a, l.s.Tail())
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(begin)
	l.t.Logf("carried %v after the %s came (first attempt: %v)", took.Round(time.Millisecond), after, first)
	if took > limit {
		l.t.Errorf("carried %v after the %s came, want 2s", took, after)
	}
}

// expectTranslated: the group reaches the VPN under the translated address, others are refused at once, and everyone says so.
func (l *life) expectTranslated(when string) {
	l.t.Helper()
	d := l.s.Await("translated and tunneled: "+when, func(d document) bool {
		n := d.Network("10.250.0.0/16")
		return d.Ready && n.State == "Tunneled" && slices.Equal(n.TranslatedTo, []string{l.w.state})
	})
	if n := d.Network("fd00:250::/48"); n.State != "Tunneled" || n.TranslatedTo != nil || d.Phase != "Tunneled" {
		l.t.Errorf("%s: phase %s, IPv6 beside translated IPv4: %+v", when, d.Phase, n)
	}
	l.r.ResetCounters()
	expectAnswer(l.t, l.r, when, rig.Node6, rig.AnswerVPN)
	for _, to := range []netip.Addr{rig.Node4, rig.Mapped(rig.Node4)} {
		if a := l.senders.dial(vpnGroup, to, "", ample); a.From != rig.AnswerVPN {
			l.t.Errorf("%s: the group connects to %v: %v", when, to, a)
		}
		l.expectOther(when, to)
	}
	if got := l.r.VPNCount(); got.Translated == 0 {
		l.t.Errorf("%s: the VPN saw %+v", when, got)
	}
	l.expectExplained(when, "Tunneled: leaves by tun0")
	expectNoLeak(l.t, l.r, when)
}

// expectProcessCarried tries it as the VPN's own process does, which is in the group as a whole.
func (l *life) expectProcessCarried() {
	l.t.Helper()
	got := l.r.Exec("setpriv", "--regid", fmt.Sprint(vpnGroup), "--clear-groups", "timeout", "10",
		"bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d; cat <&3", rig.Node4, rig.Port))
	if got.Stdout != rig.AnswerVPN {
		l.t.Errorf("a process of the group: %q %s", got.Stdout, got.Stderr)
	}
}

// expectOther: whom no rule translates is refused at once; without an owner match there is nobody like that.
func (l *life) expectOther(when string, to netip.Addr) {
	l.t.Helper()
	a := l.senders.dial(otherGroup, to, "", ample)
	switch {
	case !l.w.owner:
		if a.From != rig.AnswerVPN {
			l.t.Errorf("%s: another group connects to %v: %v", when, to, a)
		}
	case a.Err == nil || a.Took > quick:
		l.t.Errorf("%s: another group connects to %v: %v after %v, want a refusal at once", when, to, a, a.Took)
	}
}

// expectExplained asks for the node: it is dialled under another address, and the answer says under which.
func (l *life) expectExplained(when, words string) {
	l.t.Helper()
	got := l.r.Exec(shipped.Binary, "explain", rig.Node4.String(), bothNetworks)
	for _, w := range []string{words, "translated to " + rig.TranslatedNode.String()} {
		if got.Exit != 0 || !strings.Contains(got.Stdout, w) {
			l.t.Errorf("%s: explain exits with %d, want 0 and %q:\n%s%s", when, got.Exit, w, got.Stdout, got.Stderr)
		}
	}
}

// expectStopped: nobody gets anywhere by whatever socket, and nothing leaves, to real or translated addresses.
func (l *life) expectStopped(when string) {
	l.t.Helper()
	l.r.ResetCounters()
	all := ways("eth0", rig.Node4, rig.Mapped(rig.Node4), rig.Node6, rig.TranslatedNode)
	for range 2 { // before the agent has seen it, perhaps, and after
		for _, group := range []int{vpnGroup, otherGroup} {
			for i, a := range l.senders.probe(group, all...) {
				if a.Err == nil {
					l.t.Errorf("%s: group %d: %v: %v", when, group, all[i], a)
				}
			}
		}
		l.s.Await("blocked: "+when, func(d document) bool { return d.Ready && d.Phase == "Blocked" })
	}
	n := l.s.State().Network("10.250.0.0/16")
	if n.State != "Blocked" || !slices.Equal(n.TranslatedTo, []string{l.w.state}) {
		l.t.Errorf("%s: %+v", when, n)
	}
	l.expectExplained(when, "Blocked: goes nowhere")
	expectNoLeak(l.t, l.r, when)
}

// expectPlain: without nat rules there are the blackholes alone, whatever the tunnel has of translated routes.
func (l *life) expectPlain(when string) {
	l.t.Helper()
	l.s.Await("not translated: "+when, func(d document) bool {
		n := d.Network("10.250.0.0/16")
		return d.Ready && d.Phase == "Partial" && n.State == "Blocked" && n.TranslatedTo == nil
	})
	if got := l.r.Pod.Run("ip route show table 9604"); strings.TrimSpace(got) != "blackhole 10.250.0.0/16 proto 96 metric 2048" {
		l.t.Errorf("%s: table 9604 holds\n%s", when, got)
	}
	for _, group := range []int{vpnGroup, otherGroup} {
		if a := l.senders.dial(group, rig.Node4, "", brief); a.String() != "EINVAL" {
			l.t.Errorf("%s: group %d: %v, want EINVAL", when, group, a)
		}
	}
	if got := l.r.Pod.Run("iptables-" + l.fence + "-save"); strings.Contains(got, "--ctstate DNAT") {
		l.t.Errorf("%s: the rules are still for translated packets:\n%s", when, got)
	}
}

// end stops the agent, removes the fence and wants all the rest untouched, the foreign rules among it.
func (l *life) end(bare, first string) {
	l.t.Helper()
	l.s.Stop()
	l.r.TunnelDown() // made anew meanwhile, under another index
	clean(l.t, l.r)
	expectSame(l.t, "after cleanup", bare, snapshot(l.r))
	if first == "rules" {
		l.w.rule(l.r, "-D")
	}
}

// TestOneAddressTranslated: DNAT of one node, as it stands in gardener's older charts; the network around it stays as it is.
func TestOneAddressTranslated(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		w := rewriting{backend: backend, owner: true, from: rig.Node4.String(), target: "DNAT --to-destination " + rig.TranslatedNode.String()}
		r.TunnelUp(rig.Translated)
		l := &life{t: t, r: r, w: w, fence: backend, senders: newSenders(t, r)}
		l.s = startReady(t, r, backend, "--resync=10s") // so that what finds the rule is the poll for translations
		l.s.AwaitPasses(1)                              // at rest
		w.rule(r, "-A")
		l.expectCarriedSoon("rules")
		l.expectExplained("DNAT", "Tunneled: leaves by tun0")
		l.expectOther("DNAT", rig.Node4)
		neighbour := netip.MustParseAddr("10.250.0.8")
		if a := l.senders.dial(vpnGroup, neighbour, "", brief); a.String() != "EINVAL" {
			t.Errorf("the node's neighbour: %v, want EINVAL", a)
		}
		d := l.s.Await("the translated part is named", func(d document) bool { return d.Ready && len(d.Network("10.250.0.0/16").TranslatedTo) > 0 })
		if got := d.Network("10.250.0.0/16").TranslatedTo; !slices.Equal(got, []string{rig.TranslatedNode.String() + "/32"}) {
			t.Errorf("translated to %v", got)
		}
		r.TunnelDown()
		r.ResetCounters()
		expectFenced(t, r, "tunnel gone", rig.Node4, rig.TranslatedNode)
	})
}

// TestTranslationOff: who switches it off has blackholes, rules or not.
func TestTranslationOff(t *testing.T) {
	r := bench(t)
	r.TunnelUp(rig.Translated)
	netmap("nft", false).rule(r, "-A")
	s := startReady(t, r, "nft", "--translation=off")
	s.AwaitPasses(1)
	if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4}); a.String() != "EINVAL" {
		t.Errorf("got %v, want EINVAL", a)
	}
	if n := s.State().Network("10.250.0.0/16"); n.State != "Blocked" || n.TranslatedTo != nil {
		t.Errorf("the state says %+v", n)
	}
}
