package agent

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// foreignRule sends marked packets out by eth0.
var foreignRule = routes.Rule{Family: policy.IPv4, Priority: 50, Mark: 1, Mask: 0xffffffff, Action: routes.ActLookup, Table: 100}

// hop is a route of others, in table main unless said otherwise.
func hop(dst string, link int, table uint32) routes.Route {
	p := netip.MustParsePrefix(dst)
	return routes.Route{Family: policy.FamilyOf(p), Table: table, Dst: p, Type: routes.Unicast, Hops: []routes.Hop{{Link: link}}}
}

// pool are networks that nest, touch and repeat; the last entry stands for so many that they make a set.
var pool = []string{"10.250.0.0/24", "10.250.0.0/25", "10.250.0.128/26", "10.250.1.0/24", "10.251.0.0/16", "fd00:250::/120", "fd00:250::80/121",
	"fd00:251::/48", "many"}

func drawNetworks(t *rapid.T) []netip.Prefix {
	var out []netip.Prefix
	for _, n := range rapid.SliceOfN(rapid.SampledFrom(pool), 1, 4).Draw(t, "networks") {
		if n != "many" {
			out = append(out, networks(n)...)
			continue
		}
		for i := range firewall.SetThreshold + 2 {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 252, 0, byte(2 * i)}), 32))
		}
	}
	return out
}

func newWorld(t *rapid.T, met map[string]int) *world {
	w := &world{T: t, met: met, f: newFakeTables()}
	w.config = Config{Fenced: policy.Patterns{"eth0"}, Tunnels: policy.Patterns{"tun0"}, ReadyWhen: WhenFenced, Translation: FollowTranslation,
		Translated: networks(policy.DefaultTranslated), Lifelines: KeepLifelines, Resync: 10 * time.Second, Passed: func(time.Duration) {},
		Replies: rapid.SampledFrom([]Replies{NoReplies, AllReplies}).Draw(t, "replies")}
	if rapid.Bool().Draw(t, "allow") {
		w.config.Allow = networks("10.250.0.16/28")
	}
	w.r.state.Links = []routes.Link{{Index: 1, Name: "lo", Up: true},
		{Index: 2, Name: "eth0", Up: true, Addrs: []netip.Addr{addr("10.9.0.5"), addr("fd00:9::5")}, Group: rapid.SampledFrom([]uint32{0, 7}).Draw(t, "group")},
		{Index: 3, Name: "tun0", Up: true}}
	for _, f := range policy.Families {
		w.r.state.Rules = append(w.r.state.Rules, routes.Rule{Family: f, Priority: 32766, Action: routes.ActLookup, Table: routes.TableMain})
	}
	w.r.state.Routes = []routes.Route{hop("0.0.0.0/0", 2, routes.TableMain), hop("::/0", 2, routes.TableMain), hop("0.0.0.0/0", 2, 100)}
	w.f.toggle(firewall.NFT, "filter", "OUTPUT -d 192.0.2.0/24 -j DROP")
	w.f.toggle(firewall.NFT, "filter", "FORWARD -j LOG")
	for _, name := range []string{"file", "cluster"} {
		s := &statement{truth: drawNetworks(t), mode: "good"}
		s.report.Name = name
		w.sources = append(w.sources, s)
	}
	w.start()
	return w
}

// toggleRoute adds a route of others to table main, or takes it away.
func (w *world) toggleRoute(r routes.Route) {
	same := func(o routes.Route) bool { return o.Dst == r.Dst && o.Table == r.Table && o.Hops[0] == r.Hops[0] }
	before := len(w.r.state.Routes)
	w.r.state.Routes = slices.DeleteFunc(w.r.state.Routes, func(o routes.Route) bool { return len(o.Hops) > 0 && same(o) })
	if len(w.r.state.Routes) == before {
		w.r.state.Routes = append(w.r.state.Routes, r)
	}
}

// flapTunnel takes tun0 down, and its routes with it, or up.
func (w *world) flapTunnel() {
	tun := &w.r.state.Links[2]
	if tun.Up = !tun.Up; !tun.Up {
		w.r.state.Routes = slices.DeleteFunc(w.r.state.Routes, func(r routes.Route) bool { return len(r.Hops) > 0 && r.Hops[0].Link == tun.Index })
	}
}

func (w *world) toggleForeignRule() {
	if i := slices.Index(w.r.state.Rules, foreignRule); i >= 0 {
		w.r.state.Rules = slices.Delete(w.r.state.Rules, i, i+1)
		return
	}
	w.r.state.Rules = slices.Insert(w.r.state.Rules, 0, foreignRule)
}

// tamper does what a foreign program does to the fence.
func (w *world) tamper() {
	w.take(rapid.SampledFrom([]string{"table", "rule 96", "rule 97", "group", "filter", "mangle", "chain"}).Draw(w.T, "tamper"))
}

func (w *world) take(act string) {
	s := &w.r.state
	switch act {
	case "table":
		s.Routes = slices.DeleteFunc(s.Routes, func(r routes.Route) bool { return r.Ours() })
	case "rule 96", "rule 97":
		s.Rules = slices.DeleteFunc(s.Rules, func(r routes.Rule) bool { return "rule "+fmt.Sprint(r.Priority) == act })
	case "group":
		s.Links[1].Group = 0
	default:
		for table, chains := range w.f.tables[firewall.NFT] {
			for name := range chains {
				if table.Name == act || act == "chain" && name == firewall.ChainName {
					chains[name] = nil
				}
			}
		}
	}
}

var errnos = []error{unix.EINTR, unix.ENOBUFS, unix.EPERM, unix.EBUSY}

// allFaults are the kinds of faults, each of which must be met.
func allFaults() []fault {
	var out []fault
	for _, err := range errnos {
		for _, at := range []string{"routes list", "firewall list", "routes apply", "firewall apply"} {
			out = append(out, fault{at: at, err: err, to: math.MaxInt})
		}
	}
	for _, at := range []string{"routes apply in part", "firewall apply in part", "firewall unread", "firewall blind"} {
		out = append(out, fault{at: at, err: errors.New("the fault"), to: math.MaxInt})
	}
	return out
}

func (w *world) drawFault() {
	f := rapid.SampledFrom(allFaults()).Draw(w.T, "fault")
	f.calls, f.passes = rapid.SampledFrom([]int{1, math.MaxInt}).Draw(w.T, "calls"), rapid.IntRange(1, 3).Draw(w.T, "passes")
	f.family = rapid.SampledFrom(policy.Families).Draw(w.T, "family")
	if strings.HasSuffix(f.at, "in part") {
		f.from = rapid.IntRange(0, 2).Draw(w.T, "from")
		f.to = rapid.SampledFrom([]int{f.from + 1, math.MaxInt}).Draw(w.T, "to")
	}
	w.faults = append(w.faults, &f)
	if layer := strings.Fields(f.at)[0]; layer == "routes" { // something is to be written there
		w.take("table")
	} else {
		w.take("mangle")
	}
}

// TestWholeAgent walks a whole agent through all that can happen around it, over a kernel that fails on demand, and judges the kernel
// itself after every single write and every pass. The walks are the same each time; -rapid.seed=N and -rapid.checks=N take others.
func TestWholeAgent(t *testing.T) {
	for name, own := range map[string]string{"rapid.seed": "9604", "rapid.checks": "40"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			defer func() { _ = f.Value.Set(f.DefValue) }()
			if err := f.Value.Set(own); err != nil {
				t.Fatal(err)
			}
		}
	}
	met := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, met)
		start := w.r.state.Links[1].Group
		then := func(act func()) func(*rapid.T) {
			return func(t *rapid.T) {
				act()
				if rapid.IntRange(0, 3).Draw(t, "pass") > 0 {
					w.pass()
				}
			}
		}
		source := func() *statement { return w.sources[rapid.IntRange(0, 1).Draw(t, "source")] }
		t.Repeat(map[string]func(*rapid.T){
			"pass":     func(*rapid.T) { w.pass() },
			"networks": then(func() { s := source(); s.truth = drawNetworks(t); s.read() }),
			"source": then(func() {
				s := source()
				s.mode = rapid.SampledFrom([]string{"good", "good", "partly bad", "away", "empty"}).Draw(t, "mode")
				s.read()
			}),
			"VPN route": then(func() {
				w.toggleRoute(hop(rapid.SampledFrom([]string{"10.250.0.0/16", "10.250.0.0/25", "fd00:250::/32", "242.0.0.0/8"}).Draw(t, "to"), 3, routes.TableMain))
			}),
			"tunnel": then(w.flapTunnel),
			"NETMAP": then(func() {
				before := w.measure(w.r.state, w.f.snapshot())
				w.f.toggle(rapid.SampledFrom([]string{firewall.NFT, firewall.Legacy}).Draw(t, "backend"), "nat", "OUTPUT -d 10.250.0.0/24 -j NETMAP --to 242.0.0.0/24")
				if before.unstopped.Empty() {
					w.none("leaks by a rule that has not been read", w.measure(w.r.state, w.f.snapshot()).leaking.Minus(before.leaking))
				}
			}),
			"tamper": then(w.tamper),
			"foreign route": then(func() {
				w.toggleRoute(hop(rapid.SampledFrom([]string{"10.250.0.64/26", "fd00:250::40/122"}).Draw(t, "to"), 2, routes.TableMain))
			}),
			"foreign rule": then(w.toggleForeignRule),
			"restart":      then(w.start),
			"kill":         func(t *rapid.T) { w.tamper(); w.kill = rapid.IntRange(1, 12).Draw(t, "write"); w.pass() },
			"fault":        func(*rapid.T) { w.drawFault(); w.tamper(); w.pass() },
		})
		w.checkRemoval(start)
	})
	if t.Failed() {
		return
	}
	for _, f := range append(allFaults(), fault{at: "kill"}) {
		name := f.name()
		if f.at == "kill" {
			name = "kill"
		}
		if met[name] == 0 {
			t.Errorf("never met: %s", name)
		}
	}
}

// checkRemoval takes the fence away: nothing of ours is left, and all of others is.
func (w *world) checkRemoval(group uint32) {
	others := foreign(w.r.state, w.f)
	var errs []error
	for _, c := range routes.Remove(w.r.state) {
		errs = append(errs, w.r.make(c))
	}
	for _, c := range firewall.Remove(w.f.snapshot()) {
		errs = append(errs, w.f.make(c))
	}
	if err := errors.Join(errs...); err != nil {
		w.Fatalf("removal: %v", err)
	}
	if again := foreign(w.r.state, w.f); again != others {
		w.Fatalf("removal touched others:\n%s\nwas\n%s", again, others)
	}
	eth0 := w.r.state.Links[1]
	left := len(routes.Remove(w.r.state)) + len(firewall.Remove(w.f.snapshot())) + len(w.f.sets)
	if left > 0 || strings.Contains(w.f.String(), firewall.ChainName) || eth0.Saved != nil || eth0.Group != group && eth0.Group != 0 {
		w.Fatalf("removal left %d, eth0 %+v, rules\n%s", left, eth0, w.f)
	}
}
