package field

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// mixedSeed repeats a run of TestMixedHammer; timing is the machine's, so a repeated run is alike and not the same.
var mixedSeed = flag.Uint64("seed", 0, "seed of TestMixedHammer, 0 for a new one")

// mixedActs is how many acts each backend goes through.
const mixedActs = 100

// mixedRate leaves a small machine room for the agent and for the dialers.
const mixedRate = 400

// mixed is one agent's life under fire, and what the test knows of the world around it.
type mixed struct {
	t      *testing.T
	r      *rig.Rig
	random *rand.Rand
	// fence and nat are the backends of the agent and of the VPN's rules.
	fence, nat string
	file       shootFile
	s          *sidecar
	health     *health

	// tunnel names the routes that the tunnel has, "" if it is down; netmap says whether the VPN's rule is there.
	tunnel string
	netmap bool
	policy int
	// damaged says that something of the fence was taken away, or of a new NETMAP not read, since it was last seen whole; opened that
	// bound sockets get out until it is back.
	damaged, opened bool
	seen            rig.Count
	gap             uint64
	acts            map[string]int
	history         []string
}

// TestMixedHammer: whatever happens in whatever order, no free socket gets a packet out over the seed network, no bound one while
// the firewall stands, and nobody is refused while the VPN has been well for two seconds.
func TestMixedHammer(t *testing.T) {
	seed := *mixedSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", seed)
	for i, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{})
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			m := &mixed{t: t, r: r, random: random, fence: backend, nat: backends[random.IntN(2)], health: newHealth(), acts: map[string]int{}}
			expectMixedSeen(t, r, m.nat)
			m.live()
		})
	}
}

// expectMixedSeen proves, before there is a fence, that each counter counts.
func expectMixedSeen(t *testing.T, r *rig.Rig, nat string) {
	t.Helper()
	for _, translated := range []bool{false, true} {
		if translated {
			netmap(nat, false).rule(r, "-A")
			defer netmap(nat, false).rule(r, "-D")
		}
		h := r.Hammer(mixedRate)
		time.Sleep(500 * time.Millisecond)
		got := h.Stop().Seed
		if got.Free() == 0 || got.Bound == 0 || translated != (got.Translated > 0) {
			t.Fatalf("without a fence, translated %v: %+v", translated, got)
		}
	}
}

func (m *mixed) live() {
	m.file = newShootFile(m.t, m.r)
	m.changePolicy()
	m.start()
	m.s.AwaitReady()
	m.r.ResetCounters()
	h := m.r.Hammer(mixedRate)
	dialers := m.health.dial(m.r)
	begin := time.Now()
	for range mixedActs {
		m.act()
		m.count()
	}
	m.whole()
	totals := h.Stop()
	m.health.expect(m.t, dialers)
	m.t.Logf("%d acts in %v, nat rules in %s: %v", mixedActs, time.Since(begin).Round(time.Second), m.nat, m.acts)
	m.t.Logf("%v; %d packets and requests of bound sockets while both tables were empty", totals, m.gap)
	if totals.Seed.Free() != 0 || totals.Attempts == 0 || totals.VPN.Free() == 0 {
		m.t.Errorf("packets of free sockets: %v", totals)
	}
}

func (m *mixed) start() {
	m.s = start(m.t, m.r, "--shoot-file="+m.file.path, "--firewall="+m.fence, "--resync=500ms", "--log-level=warn")
}

// act does one thing at random, and now and then lets the world be for long enough that what is refused counts.
func (m *mixed) act() {
	acts := []struct {
		weight int
		do     func()
	}{
		{5, m.changePolicy}, {2, m.changeTunnel}, {2, m.changeNetmap}, {8, m.damage}, {3, m.kill},
	}
	sum := 0
	for _, a := range acts {
		sum += a.weight
	}
	n := m.random.IntN(sum)
	for _, a := range acts {
		if n -= a.weight; n < 0 {
			a.do()
			break
		}
	}
	rest := time.Duration(m.random.IntN(300)) * time.Millisecond
	time.Sleep(rest)
}

// note keeps the history, for messages.
func (m *mixed) note(kind, what string) {
	m.acts[kind]++
	m.history = append(m.history, time.Now().Format("05.000 ")+kind+" "+what)
	m.health.tell(m.history)
}

// mixedPolicies all cover the node, under other prefixes.
var mixedPolicies = [][]string{
	{"10.250.0.0/16", "fd00:250::/48"},
	{"10.250.0.0/17", "10.250.192.0/18", "fd00:250::/49", "fd00:250:0:c000::/50"},
	{"10.250.0.0/16", "10.251.0.0/16", "fd00:250::/47"},
	{"10.248.0.0/14", "fd00:250::/40"},
	{"10.250.0.0/24", "172.16.0.0/12", "fd00:250::/64"},
}

func (m *mixed) changePolicy() {
	m.policy = (m.policy + 1 + m.random.IntN(len(mixedPolicies)-1)) % len(mixedPolicies)
	m.note("policy", fmt.Sprint(mixedPolicies[m.policy]))
	m.file.write(mixedPolicies[m.policy]...)
}

// mixedTunnels are the routes that a tunnel may have: real addresses as of old, translated ones, or both.
var mixedTunnels = map[string][]netip.Prefix{
	"old":  {rig.Network4, rig.Network6},
	"new":  {rig.Translated, rig.Network6},
	"both": {rig.Network4, rig.Translated, rig.Network6},
}

// changeTunnel takes the tunnel down or brings one up.
func (m *mixed) changeTunnel() {
	m.health.lost()
	if m.tunnel != "" {
		m.tunnel = ""
		m.note("tunnel", "down")
		m.r.TunnelDown()
	} else {
		m.tunnel = []string{"old", "new", "both", "both"}[m.random.IntN(4)]
		m.note("tunnel", "up with "+m.tunnel)
		m.r.TunnelUp(mixedTunnels[m.tunnel]...)
	}
	m.judge()
	m.rest()
}

// changeNetmap adds or deletes the VPN's rule. The fence is whole then: until the agent has read the rule, what stops a packet that the
// tunnel has a route for and the rule translates is one rule in mangle.
func (m *mixed) changeNetmap() {
	m.whole()
	m.health.lost()
	m.netmap = !m.netmap
	m.note("netmap", fmt.Sprint(m.netmap))
	action := "-D"
	if m.netmap {
		action = "-A"
		m.damaged = true
	}
	netmap(m.nat, false).rule(m.r, action)
	m.judge()
	m.rest()
}

// rest waits, every other time, until what is refused counts.
func (m *mixed) rest() {
	if m.health.any() && m.random.IntN(2) == 0 {
		time.Sleep(healthyAfter)
	}
}

// judge says whom the VPN carries now.
func (m *mixed) judge() {
	translated, real4 := m.tunnel == "new" || m.tunnel == "both", m.tunnel == "old" || m.tunnel == "both"
	m.health.is(rig.Node4, m.netmap && translated || !m.netmap && real4)
	m.health.is(rig.Node6, m.tunnel != "")
}

// kill ends the agent without notice and starts another.
func (m *mixed) kill() {
	m.note("kill", "")
	m.s.Kill()
	time.Sleep(time.Duration(m.random.IntN(50)) * time.Millisecond)
	m.start()
}

// whole waits until two passes have ended since now, of which the second began after it.
func (m *mixed) whole() {
	if m.damaged {
		m.s.AwaitReady()
		m.s.AwaitPasses(2)
		m.s.AwaitReady()
		m.count()
	}
	if m.opened {
		// What got out has left entries there, which the kernel asks about again seconds later.
		m.r.Pod.Run("ip neigh flush to 10.250.0.0/16 dev eth0")
	}
	m.damaged, m.opened = false, false
}

// count looks at what arrived at the seed network since it was last asked.
func (m *mixed) count() {
	got := m.r.SeedCount()
	fresh := got
	fresh.Packets, fresh.Translated = got.Packets-m.seen.Packets, got.Translated-m.seen.Translated
	fresh.Neighbour, fresh.Bound = got.Neighbour-m.seen.Neighbour, got.Bound-m.seen.Bound
	m.seen = got
	if n := fresh.Bound + fresh.Neighbour; n > 0 && m.opened {
		m.gap += n
	} else if n > 0 {
		m.t.Errorf("%+v of bound sockets arrived while the firewall stood; before that:\n%s", fresh, m.recently())
	}
	if fresh.Free() > 0 {
		m.t.Errorf("%+v of free sockets arrived; before that:\n%s", fresh, m.recently())
	}
}

func (m *mixed) recently() string { return strings.Join(m.history[max(0, len(m.history)-8):], "\n") }
