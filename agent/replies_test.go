package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"go.uber.org/zap"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// place is a pod whose eth0 has an address in 10.4.1.0/24, behind a gateway in 10.5/16.
func place() routes.State {
	return routes.State{
		Links: []routes.Link{{Index: 2, Name: "eth0", Up: true, Addrs: []netip.Addr{addr("10.4.1.9")}}},
		Routes: []routes.Route{
			{Family: policy.IPv4, Table: routes.TableMain, Type: routes.Unicast, Dst: netip.MustParsePrefix("10.4.1.0/24"), Protocol: 2, Hops: []routes.Hop{{Link: 2}}},
			{Family: policy.IPv4, Table: routes.TableMain, Type: routes.Unicast, Dst: netip.MustParsePrefix("0.0.0.0/0"), Hops: []routes.Hop{{Link: 2, Gateway: addr("10.5.0.1")}}},
		},
	}
}

// TestWhoIsAnswered goes through the reasons for replies, each network having one.
func TestWhoIsAnswered(t *testing.T) {
	all := []string{"10.2.0.0/16", "10.4.0.0/16", "10.5.0.0/24", "10.7.0.0/16", "10.9.0.0/16", "fd00::/16"}
	var networks []netip.Prefix
	for _, n := range all {
		networks = append(networks, netip.MustParsePrefix(n))
	}
	reports := []shoot.Report{{Name: "flag", Known: true, Networks: networks}}
	for replies, want := range map[Replies][]string{"": nil, NoReplies: nil, AllReplies: all, AutoReplies: {"10.2.0.0/16", "10.4.0.0/16", "10.5.0.0/24", "10.7.0.0/16"}} {
		a := New(Config{Replies: replies, Fenced: policy.Patterns{"eth0"}, Lifelines: KeepLifelines,
			Known: []policy.Lifeline{{Addr: addr("10.2.0.10"), Name: "DNS server"}}, Hosts: []netip.Addr{addr("10.7.0.1")}},
			Kernel{}, nil, zap.NewNop())
		for _, s := range []routes.State{place(), {}} { // the second one could not be read
			p, _ := a.policyFor(reports, s)
			if got := texts(p.Replies); !slices.Equal(got, want) {
				t.Errorf("replies=%s: %v, want %v", replies, got, want)
			}
		}
	}
}

// TestRefusedNetworksAreNotAnswered: --lifelines=refuse takes a network out; what is left may still hold the host.
func TestRefusedNetworksAreNotAnswered(t *testing.T) {
	a := New(Config{Replies: AutoReplies, Fenced: policy.Patterns{"eth0"}, Lifelines: RefuseLifelines, Hosts: []netip.Addr{addr("10.7.0.1")}},
		Kernel{}, nil, zap.NewNop())
	networks := []netip.Prefix{netip.MustParsePrefix("10.4.0.0/16"), netip.MustParsePrefix("10.7.0.0/16")}
	p, refused := a.policyFor([]shoot.Report{{Known: true, Networks: networks}}, place())
	if got := texts(p.Replies); !slices.Equal(got, []string{"10.7.0.0/16"}) || len(refused) != 1 {
		t.Errorf("replies for %v, refused %v", got, refused)
	}
}

// TestSparing: what came in is spared where the firewall held, and only there.
func TestSparing(t *testing.T) {
	p := policy.New([]netip.Prefix{netip.MustParsePrefix("10.4.0.0/16"), netip.MustParsePrefix("10.7.0.0/16")}, nil, policy.Patterns{"eth0"}, nil).
		Answer(func(n netip.Prefix) bool { return n.Addr() == addr("10.7.0.0") })
	open := opening{to: ranges.Of(p.Networks...)}
	f := &fakeFirewall{networks: func() []netip.Prefix { return p.Networks }}
	if err := f.Apply(nil); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[int]observation{1: {routes: place(), firewall: f.snapshot}, 2: {routes: place(), firewall: firewall.Snapshot{}}} {
		if got := sparing(open, plan{wanted: wanted{policy: p}}, o).to.Prefixes(); len(got) != want {
			t.Errorf("ends connections to %v, want %d networks", got, want)
		}
	}
}
