package explain

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/verdict"
)

func via(dst string, link int) routes.Route {
	return routes.Route{Family: policy.IPv4, Table: routes.TableMain, Dst: netip.MustParsePrefix(dst), Type: routes.Unicast, Hops: []routes.Hop{{Link: link}}}
}

// pod is a namespace with these routes in table main, fenced in both layers or bare.
func pod(p policy.Policy, fenced bool, main ...routes.Route) (routes.State, firewall.Snapshot) {
	s := routes.State{
		Links:  []routes.Link{{Index: 1, Name: "lo", Up: true}, {Index: 2, Name: "eth0", Up: true}, {Index: 3, Name: "tun0", Up: true}},
		Routes: append([]routes.Route{via("0.0.0.0/0", 2)}, main...),
	}
	f := firewall.Snapshot{Tables: firewall.Tables{}}
	if fenced {
		s.Links[1].Group = routes.Group
		fence := routes.Desired(p, nil, s)
		s.Rules, s.Routes = fence.Rules, append(s.Routes, fence.Routes...)
		for _, want := range firewall.Desired(p, firewall.Options{}).Fences {
			chains := map[string]firewall.Chain{firewall.ChainName: {Rules: want.Rules}}
			for _, base := range want.Bases {
				chains[base] = firewall.Chain{Policy: "ACCEPT", Rules: []firewall.Rule{{Target: firewall.ChainName}}}
			}
			f.Tables[want.Table] = chains
		}
	}
	s.Rules = append(s.Rules, routes.Rule{Family: policy.IPv4, Priority: 32766, Action: routes.ActLookup, Table: routes.TableMain})
	return s, f
}

func TestAddress(t *testing.T) {
	base := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16")}, nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0"})
	kept := base.Keep([]policy.Lifeline{{Addr: netip.MustParseAddr("10.250.0.7"), Name: "DNS server"}})
	expecting, _ := base.Expect([]netip.Prefix{netip.MustParsePrefix(policy.DefaultTranslated)}, nil, nil)
	for name, c := range map[string]struct {
		addr   string
		policy policy.Policy
		fenced bool
		main   []routes.Route
		state  verdict.State
		says   []string
	}{
		"no node":    {"192.0.2.1", base, true, nil, NotNode, []string{"not a node address", "to eth0"}},
		"translated": {"242.0.0.7", expecting, true, nil, NotNode, []string{"not a node address, but one that", "are closed to it", "to eth0", "sent to eth0 is stopped"}},
		"VPN down":   {"10.250.0.7", base, true, nil, verdict.Blocked, []string{"goes nowhere", "blackhole 10.250.0.0/16", "rule 97", "sent to eth0 is stopped"}},
		"VPN up":     {"10.250.0.7", base, true, []routes.Route{via("10.0.0.0/8", 3)}, verdict.Tunneled, []string{"leaves by tun0", "rule 96"}},
		"no fence":   {"10.250.0.7", base, false, nil, verdict.Leaking, []string{"LEAKING", "to eth0", "a packet sent to eth0 leaves"}},
		"foreign":    {"10.250.0.7", base, true, []routes.Route{via("10.250.0.0/24", 2)}, verdict.Blocked, []string{"passed over: eth0 is fenced", "route 10.250.0.0/24 dev eth0"}},
		"lifeline":   {"10.250.0.7", kept, true, nil, verdict.Allowed, []string{"Allowed: kept as a lifeline of the pod: DNS server"}},
		"neighbour":  {"10.250.0.8", kept, true, nil, verdict.Blocked, []string{"goes nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, f := pod(c.policy, c.fenced, c.main...)
			got := Address(netip.MustParseAddr(c.addr), c.policy, s, f, nil)
			if got.State != c.state || got.Leaks() != (c.state == verdict.Leaking) {
				t.Errorf("state %s, want %s", got.State, c.state)
			}
			for _, word := range c.says {
				if !strings.Contains(got.String(), word) {
					t.Errorf("no %q in\n%s", word, got)
				}
			}
		})
	}
}

// TestRulesThatNothingJumpsTo: the rule against what nodes may be translated to is there, and does nothing.
func TestRulesThatNothingJumpsTo(t *testing.T) {
	p, _ := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16")}, nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0"}).
		Expect([]netip.Prefix{netip.MustParsePrefix(policy.DefaultTranslated)}, nil, nil)
	s, f := pod(p, true)
	for table, chains := range f.Tables {
		if table.Name == "mangle" {
			delete(chains, "POSTROUTING")
		}
	}
	got := Address(netip.MustParseAddr("242.0.0.7"), p, s, f, nil).String()
	if !strings.Contains(got, "should be closed to it, and are not") || !strings.Contains(got, "sent to eth0 leaves") {
		t.Errorf("of a chain that nothing jumps to it says\n%s", got)
	}
}
