package verdict

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

const (
	lo = iota + 1
	eth0
	tun0
	eth1
)

// world is a namespace under construction.
type world struct {
	p    policy.Policy
	ts   []policy.Translation
	s    routes.State
	fw   firewall.Snapshot
	bare bool
}

func route(line string) routes.Route {
	f := strings.Fields(line)
	r := routes.Route{Family: policy.IPv4, Table: routes.TableMain, Dst: prefix(f[0]), Type: routes.Unicast}
	for i, w := range f {
		switch w {
		case "eth0":
			r.Hops = append(r.Hops, routes.Hop{Link: eth0, Gateway: netip.MustParseAddr("169.254.1.1")})
		case "tun0":
			r.Hops = append(r.Hops, routes.Hop{Link: tun0})
		case "eth1":
			r.Hops = append(r.Hops, routes.Hop{Link: eth1})
		case "table":
			_, _ = fmt.Sscan(f[i+1], &r.Table)
		}
	}
	return r
}

// newWorld is a pod with one node network, the fence in place and the VPN down.
func newWorld(change func(w *world)) *world {
	w := &world{p: policy.New([]netip.Prefix{prefix("10.1.0.0/16")}, nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0"})}
	w.s.Links = []routes.Link{
		{Index: lo, Name: "lo", Up: true},
		{Index: eth0, Name: "eth0", Up: true, Group: routes.Group, Addrs: []netip.Addr{netip.MustParseAddr("10.9.0.5")}},
		{Index: tun0, Name: "tun0", Up: true},
		{Index: eth1, Name: "eth1", Up: true},
	}
	w.s.Rules = []routes.Rule{{Family: policy.IPv4, Action: routes.ActLookup, Table: routes.TableLocal}}
	w.s.Routes = []routes.Route{route("0.0.0.0/0 via eth0")}
	if change != nil {
		change(w)
	}
	if !w.bare {
		fence := routes.Desired(w.p, w.ts, w.s)
		w.s.Rules = append(w.s.Rules, fence.Rules...)
		slices.SortStableFunc(w.s.Rules, func(a, b routes.Rule) int { return int(a.Priority) - int(b.Priority) })
		w.s.Routes = append(w.s.Routes, fence.Routes...)
		w.fw = standing(w.p, w.ts)
	}
	w.s.Rules = append(w.s.Rules, routes.Rule{Family: policy.IPv4, Priority: 32766, Action: routes.ActLookup, Table: routes.TableMain})
	return w
}

// standing is the firewall with the fence in place.
func standing(p policy.Policy, ts []policy.Translation) firewall.Snapshot {
	want := firewall.Desired(p, firewall.Options{Translations: ts})
	out := firewall.Snapshot{Tables: firewall.Tables{}, Sets: want.Sets}
	for _, f := range want.Fences {
		if out.Tables[f.Table] == nil {
			out.Tables[f.Table] = map[string]firewall.Chain{}
		}
		out.Tables[f.Table][f.Chain] = firewall.Chain{Rules: f.Rules}
		for _, base := range f.Bases {
			out.Tables[f.Table][base] = firewall.Chain{Policy: "ACCEPT", Rules: []firewall.Rule{{Target: f.Chain}}}
		}
	}
	return out
}

func (w *world) add(lines ...string) {
	for _, l := range lines {
		w.s.Routes = append(w.s.Routes, route(l))
	}
}

// TestVerdict goes through what can happen to a network; each case names everything that must be said of it.
func TestVerdict(t *testing.T) {
	marked := routes.Rule{Family: policy.IPv4, Priority: 50, Mark: 1, Mask: 0xffffffff, Action: routes.ActLookup, Table: 100}
	for name, c := range map[string]struct {
		change func(w *world)
		after  func(w *world)
		want   string
	}{
		"VPN down":             {nil, nil, "Blocked"},
		"VPN route equal":      {func(w *world) { w.add("10.1.0.0/16 tun0") }, nil, "Tunneled tun0 whole"},
		"VPN route shorter":    {func(w *world) { w.add("10.0.0.0/8 tun0") }, nil, "Tunneled tun0 whole"},
		"VPN routes longer":    {func(w *world) { w.add("10.1.0.0/17 tun0", "10.1.128.0/17 tun0") }, nil, "Tunneled tun0 whole"},
		"VPN carries one half": {func(w *world) { w.add("10.1.0.0/17 tun0") }, nil, "Blocked, 10.1.0.0/17 Tunneled tun0"},
		"tunnel without carrier": {func(w *world) {
			w.add("10.1.0.0/16 tun0")
			w.s.Links[tun0-1].Up = false
		}, nil, "Blocked"},
		"longer route over eth0 is kept from use": {func(w *world) { w.add("10.1.0.0/16 tun0", "10.1.54.0/24 eth0") }, nil,
			"Tunneled tun0, 10.1.54.0/24 Blocked eth0 by route 10.1.54.0/24 via 169.254.1.1 dev eth0 table main"},
		"two halves over eth0": {func(w *world) { w.add("10.1.0.0/17 eth0", "10.1.128.0/17 eth0") }, nil,
			"Blocked, 10.1.0.0/17 Blocked eth0 by route 10.1.0.0/17, 10.1.128.0/17 Blocked eth0 by route 10.1.128.0/17"},
		"link group reset": {func(w *world) { w.add("10.1.54.0/24 eth0") }, func(w *world) { w.s.Links[eth0-1].Group = 0 },
			"Blocked, 10.1.54.0/24 Bypassed eth0 by route 10.1.54.0/24"},
		"link group reset, default route": {nil, func(w *world) { w.s.Links[eth0-1].Group = 0 }, "Blocked"},
		"rule for a mark": {func(w *world) {
			w.s.Rules = append(w.s.Rules, marked)
			w.add("0.0.0.0/0 eth0 table 100", "10.1.0.0/16 tun0")
		}, nil, "Tunneled tun0 whole, 10.1.0.0/16 Bypassed eth0 by rule 50: from all fwmark 0x1 lookup 100: route default"},
		"second hop over eth0 is not suppressed": {func(w *world) { w.add("10.1.0.0/16 tun0 eth0") }, nil,
			"Tunneled tun0 whole, 10.1.0.0/16 Bypassed eth0 by next hop 2"},
		"our rules deleted": {nil, func(w *world) { w.s.Rules = append(w.s.Rules[:1], w.s.Rules[3:]...) },
			"Blocked, 10.1.0.0/16 Bypassed eth0 by route default"},
		"firewall flushed": {nil, func(w *world) { w.fw = firewall.Snapshot{} }, "Blocked, unstopped 10.1.0.0/16 eth0"},
		"no fence at all": {func(w *world) { w.bare = true }, nil,
			"Leaking, 10.1.0.0/16 Leaking eth0 by route default, unstopped 10.1.0.0/16 eth0"},
		"an interface of no role": {func(w *world) { w.add("10.1.7.0/24 eth1") }, nil,
			"Leaking, 10.1.7.0/24 Leaking eth1 by route 10.1.7.0/24 dev eth1 table main (eth1 is neither fenced nor a tunnel)"},
		"allowed part": {func(w *world) {
			w.p.Allow = []netip.Prefix{prefix("10.1.9.0/24")}
			w.add("10.1.0.0/16 tun0")
		}, nil, "Tunneled tun0 whole, 10.1.9.0/24 Allowed"},
		"translated, VPN up":   {func(w *world) { w.translate(); w.add("242.0.0.0/8 tun0") }, nil, "Tunneled tun0 whole to 242.0.0.0/16"},
		"translated, VPN down": {(*world).translate, nil, "Blocked to 242.0.0.0/16"},
		"answering, VPN down":  {(*world).answer, nil, "Blocked"},
		"answering, VPN up":    {func(w *world) { w.answer(); w.add("10.1.0.0/16 tun0") }, nil, "Tunneled tun0 whole"},
		"answering, firewall flushed": {(*world).answer, func(w *world) { w.fw = firewall.Snapshot{} },
			"Leaking, 10.1.0.0/16 Leaking eth0 by rule 95: from all fwmark 0x9604/0xffff lookup 9605: route default via 169.254.1.1 dev eth0 onlink" +
				" table 9605 proto 96 metric 1024; firewall: no chain ROUTEFENCE in filter, unstopped 10.1.0.0/16 eth0"},
		"answering, marked packets let out": {(*world).answer, func(w *world) { w.letOut("-m connmark --mark 0x9604/0xffff") },
			"Leaking, 10.1.0.0/16 Leaking eth0 by rule 95, unstopped 10.1.0.0/16 eth0"},
		"answering, answers let out twice": {(*world).answer, func(w *world) { w.letOut("-m conntrack --ctdir REPLY") }, "Blocked"},
		"answering, another rule for the mark": {func(w *world) {
			w.answer()
			marked := marked
			marked.Mark = 0x9604
			w.s.Rules = append(w.s.Rules, marked)
			w.add("0.0.0.0/0 eth0 table 100")
		}, nil, "Blocked, 10.1.0.0/16 Bypassed eth0 by rule 50: from all fwmark 0x9604"},
		// The sink takes what the suppressed route leaves, so translated senders do not notice it.
		"translated, real route over eth0": {func(w *world) { w.translate(); w.add("242.0.0.0/8 tun0", "10.1.3.0/24 eth0") }, nil,
			"Tunneled tun0 whole to 242.0.0.0/16"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(c.change)
			if c.after != nil {
				c.after(w)
			}
			got := Of(w.p, w.ts, w.s, w.fw)
			if len(got) != 1 {
				t.Fatalf("%d verdicts", len(got))
			}
			check(t, got[0], c.want)
		})
	}
}

func (w *world) answer() { w.p = w.p.Answer(func(netip.Prefix) bool { return true }) }

// letOut puts a rule that accepts some packets before all others of our chains.
func (w *world) letOut(match string) {
	for _, name := range []string{"filter", "mangle"} {
		saved, _ := firewall.ParseSave(policy.IPv4, []byte("*"+name+"\n-A ROUTEFENCE "+match+" -j ACCEPT\nCOMMIT\n"))
		table := firewall.Table{Family: policy.IPv4, Name: name}
		chain := w.fw.Tables[table][firewall.ChainName]
		chain.Rules = slices.Insert(slices.Clone(chain.Rules), 0, saved[table][firewall.ChainName].Rules...)
		w.fw.Tables[table][firewall.ChainName] = chain
	}
}

func (w *world) translate() {
	w.ts = []policy.Translation{{From: prefix("10.1.0.0/16"), To: prefix("242.0.0.0/16")}}
}

// check compares a verdict with its description; of a cause, what is given is its start.
func check(t *testing.T, n Network, want string) {
	t.Helper()
	var parts []string
	head := strings.TrimSpace(string(n.State) + " " + n.Interface)
	if n.Whole {
		head += " whole"
	}
	for _, to := range n.TranslatedTo {
		head += " to " + to.String()
	}
	parts = append(parts, head)
	for _, e := range n.Exceptions {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.CIDR, e.State, e.Interface))+" by "+e.Cause)
	}
	for _, e := range n.Unstopped {
		parts = append(parts, fmt.Sprintf("unstopped %s %s by %s", e.CIDR, e.Interface, e.Cause))
	}
	wants := strings.Split(want, ", ")
	if len(wants) != len(parts) {
		t.Fatalf("got %q, want %q", parts, wants)
	}
	for i := range parts {
		if i == 0 && parts[i] != wants[i] || !strings.HasPrefix(parts[i], wants[i]) {
			t.Errorf("part %d is %q, want %q", i, parts[i], wants[i])
		}
	}
}

// TestDead: what goes nowhere, be it a network, the rest of one, or a part of one.
func TestDead(t *testing.T) {
	p := netip.MustParsePrefix
	got := Dead([]Network{
		{CIDR: p("10.1.0.0/16"), State: Blocked},
		{CIDR: p("10.2.0.0/16"), State: Tunneled},
		{CIDR: p("10.3.0.0/16"), State: Tunneled, Exceptions: []Exception{{CIDR: p("10.3.1.0/24"), State: Blocked}, {CIDR: p("10.3.2.0/24"), State: Allowed}}},
		{CIDR: p("10.4.0.0/24"), State: Blocked, Exceptions: []Exception{{CIDR: p("10.4.0.0/25"), State: Tunneled}, {CIDR: p("10.4.0.128/26"), State: Blocked}}},
		{CIDR: p("10.5.0.0/16"), State: Leaking},
		{CIDR: p("10.6.0.0/16"), State: Bypassed},
	}).Prefixes()
	want := []netip.Prefix{p("10.1.0.0/16"), p("10.3.1.0/24"), p("10.4.0.128/25")}
	if !slices.Equal(got, want) {
		t.Errorf("dead are %v, want %v", got, want)
	}
}
