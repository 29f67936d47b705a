package agent

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"go4.org/netipx"
)

// sinks returns the routes to lo that a translated network needs.
func (b *bench) sinks() int {
	n := 0
	for _, r := range b.r.state.Routes {
		if r.Ours() && r.Type == routes.Unicast {
			n++
		}
	}
	return n
}

// translating is a bench whose nat OUTPUT maps the node network, with the VPN up.
func translating(t *testing.T) *bench {
	t.Helper()
	b := newBench("10.250.0.0/16")
	b.Translation = FollowTranslation
	b.r.state.Links[1].Addrs = []netip.Addr{netip.MustParseAddr("10.1.178.85")}
	b.r.state.Links = append(b.r.state.Links, routes.Link{Index: 3, Name: "tun0", Up: true})
	b.r.state.Routes = append(b.r.state.Routes, routes.Route{Family: policy.IPv4, Table: routes.TableMain,
		Dst: netip.MustParsePrefix("242.0.0.0/8"), Type: routes.Unicast, Hops: []routes.Hop{{Link: 3}}})
	b.f.nat = []firewall.Rule{{Dst: firewall.Network{Prefix: netip.MustParsePrefix("10.250.0.0/16")}, Target: "NETMAP",
		To: netipx.RangeOfPrefix(netip.MustParsePrefix("242.0.0.0/16"))}}
	b.f.mapNat()
	b.Pass()
	b.Pass()
	if b.sinks() != 1 || b.document().Phase != Tunneled {
		t.Fatalf("not translated: %d sinks, %+v", b.sinks(), b.document())
	}
	return b
}

// TestUnreadFirewallLeavesTheRoutes: without a look at nat OUTPUT nobody knows what is translated. Taking "unread" for "none" would
// delete the sink, and with it the healthy VPN.
func TestUnreadFirewallLeavesTheRoutes(t *testing.T) {
	for name, inject := range map[string]func(b *bench){
		"firewall":      func(b *bench) { b.f.listErr = errors.New("the fault") },
		"family":        func(b *bench) { b.f.snapshot.Unread = map[policy.Family]error{policy.IPv4: errors.New("the fault")} },
		"other backend": func(b *bench) { b.f.snapshot.Blind = map[policy.Family]error{policy.IPv4: errors.New("the fault")} },
	} {
		t.Run(name, func(t *testing.T) {
			b := translating(t)
			inject(b)
			delete(b.f.snapshot.Tables, firewall.Table{Family: policy.IPv4, Name: "nat"})
			b.Pass()
			if b.sinks() != 1 {
				t.Error("the sink is gone")
			}
		})
	}
}

// TestBrokenTableEndsReadinessAtOnce: the lease is for a read that failed once, not for a table that somebody made unreadable.
func TestBrokenTableEndsReadinessAtOnce(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Pass()
	b.f.snapshot.Incompatible = map[firewall.Table]bool{{Family: policy.IPv4, Name: "mangle"}: true}
	b.Pass()
	if d := b.document(); d.Ready || d.Reason != NotVerified {
		t.Errorf("ready %v, %s: %s", d.Ready, d.Reason, d.Message)
	}
}

// TestUnreadRoutesLeaveTheRules: rules for a pattern that stands for present links must not go because the links could not be read.
func TestUnreadRoutesLeaveTheRules(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Fenced = policy.Patterns{"eth?"}
	b.Pass()
	writes := b.f.writes
	b.r.listErr = errors.New("the fault")
	b.Pass()
	if b.f.writes != writes {
		t.Error("the firewall was rewritten without a look at the links")
	}
}

// TestHalfGoodSourceAfterRestartShrinksNothing: the first reading has nothing to be compared with but the fence that stands.
func TestHalfGoodSourceAfterRestartShrinksNothing(t *testing.T) {
	old := newBench("10.250.0.0/16", "10.252.0.0/16")
	old.Pass()
	b := newBench("10.250.0.0/16")
	b.r, b.f = old.r, old.f
	b.kernel.Routes, b.kernel.Firewall = old.r, old.f
	b.src.report.Err = &policy.InvalidNetworkError{Item: "10.252.0.0/1x", Err: errors.New("not a number")}
	b.Pass()
	if got := texts(policy.New(b.r.state.Adopted(), nil, nil, nil).Networks); !slices.Equal(got, []string{"10.250.0.0/16", "10.252.0.0/16"}) {
		t.Errorf("fenced %v", got)
	}
	b.src.report = shoot.Report{Name: "test", Known: true, Networks: networks("10.250.0.0/16")}
	b.Pass()
	if got := texts(b.r.state.Adopted()); !slices.Equal(got, []string{"10.250.0.0/16"}) {
		t.Errorf("after a whole statement: fenced %v", got)
	}
}

// TestConnectionsInTheTunnelAreSpared: sockets of a translated connection show the node's real address, whose route is the default
// one.
func TestConnectionsInTheTunnelAreSpared(t *testing.T) {
	b := translating(t)
	b.severed.ended = nil
	b.r.state.Rules = slices.DeleteFunc(b.r.state.Rules, routes.Rule.Ours)
	b.Pass()
	if len(b.severed.ended) > 0 {
		t.Errorf("a repair ended connections %v, which run through the tunnel", b.severed.ended)
	}
}

// TestInCompanyNothingIsTakenAway: of two processes with different sets in one namespace, neither may open what the other fences.
func TestInCompanyNothingIsTakenAway(t *testing.T) {
	other := newBench("10.250.0.0/16")
	other.Pass()
	b := newBench("10.252.0.0/16")
	b.r, b.f = other.r, other.f
	b.kernel.Routes, b.kernel.Firewall = other.r, other.f
	b.f.networks = func() []netip.Prefix { return networks("10.250.0.0/16", "10.252.0.0/16") }
	company := true
	b.Alone = func() bool { return !company }
	b.Pass()
	if got := texts(b.r.state.Adopted()); !slices.Equal(got, []string{"10.250.0.0/16", "10.252.0.0/16"}) {
		t.Errorf("in company: fenced %v", got)
	}
	if d := b.document(); d.Ready || d.Reason != Conflict {
		t.Errorf("in company: ready %v, %s: %s", d.Ready, d.Reason, d.Message)
	}
	company = false
	b.f.networks = func() []netip.Prefix { return networks("10.252.0.0/16") }
	b.Pass()
	if d := b.document(); !d.Ready || len(b.r.state.Adopted()) != 1 {
		t.Errorf("alone: ready %v (%s), fenced %v", d.Ready, d.Message, b.r.state.Adopted())
	}
}

// TestRenamedToATunnelEndsReadiness: a name makes a tunnel, so what is left to fence is nothing, and the state must not be content.
func TestRenamedToATunnelEndsReadiness(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Pass()
	b.r.state.Links[1].Name = "tun0"
	b.Pass()
	if d := b.document(); d.Ready || d.Reason != LayerMissing || !strings.Contains(d.Message, "no interface matches --fence-interfaces=eth0") {
		t.Errorf("ready %v, %s: %s", d.Ready, d.Reason, d.Message)
	}
}

// TestAMissingLayerEndsReadinessThoughTheOtherIsUnread: the lease is for what nobody can read, not for what was read as missing.
func TestAMissingLayerEndsReadinessThoughTheOtherIsUnread(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Pass()
	b.r.state.Routes = slices.DeleteFunc(b.r.state.Routes, func(r routes.Route) bool { return r.Ours() })
	b.r.applyErr, b.f.listErr = errors.New("refused"), errors.New("busy")
	b.Pass()
	if d := b.document(); d.Ready {
		t.Errorf("ready: %s", d.Message)
	}
}

// TestReadableTranslationCountsThoughTheOtherBackendIsUnread: nor does a restart forget those that the routes are made for.
func TestReadableTranslationCountsThoughTheOtherBackendIsUnread(t *testing.T) {
	b := translating(t)
	b.memory = memory{}
	b.f.snapshot.Blind = map[policy.Family]error{policy.IPv4: errors.New("the fault")}
	delete(b.f.snapshot.Tables, firewall.Table{Family: policy.IPv4, Name: "nat"})
	b.f.applyErr = errors.New("busy")
	b.Pass()
	if n := len(b.memory.last.translations); n != 1 {
		t.Errorf("after a restart: %d translations", n)
	}
	b.f.applyErr = nil
	b.f.nat[0].Dst.Prefix = netip.MustParsePrefix("10.250.0.0/17")
	b.f.mapNat()
	b.f.snapshot.Blind = map[policy.Family]error{policy.IPv4: errors.New("the fault")}
	b.Pass()
	if n := len(b.memory.last.translations); n != 2 {
		t.Errorf("after another one came: %d translations", n)
	}
}

// TestUnreadRoutesLeaveWhatOthersLeft: somebody emptied our chain in filter, which tells the networks; mangle still holds them.
func TestUnreadRoutesLeaveWhatOthersLeft(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Pass()
	b.memory = memory{}
	b.f.snapshot.Tables[firewall.Table{Family: policy.IPv4, Name: "filter"}][firewall.ChainName] = firewall.Chain{}
	b.r.listErr = errors.New("the fault")
	writes := b.f.writes
	b.Pass()
	if b.f.writes != writes {
		t.Error("the firewall was rewritten by a process that has not seen the links")
	}
}
