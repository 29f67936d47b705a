package agent

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
)

// restarted is another agent in the namespace of the first.
func restarted(old *bench, list ...string) *bench {
	b := newBench(list...)
	b.Translation = old.Translation
	b.r, b.f = old.r, old.f
	b.kernel.Routes, b.kernel.Firewall = old.r, old.f
	return b
}

// TestFirstWriteComesBeforeTheFirewallIsRead: decision 4. To read the firewall, programs are started and a backend is proven.
func TestFirstWriteComesBeforeTheFirewallIsRead(t *testing.T) {
	b := newBench("10.250.0.0/16")
	fenced := -1
	b.f.listing = func() {
		if fenced < 0 {
			fenced = len(b.r.state.Adopted())
		}
	}
	b.Pass()
	if fenced != 1 {
		t.Errorf("when the firewall was read for the first time, %d networks had their blackholes, want 1", fenced)
	}
}

// TestRestartAdoptsFromTheRoutesAlone: somebody has flushed the firewall while nobody watched, and no source has spoken yet.
func TestRestartAdoptsFromTheRoutesAlone(t *testing.T) {
	old := newBench("10.250.0.0/16")
	old.Pass()
	b := restarted(old)
	b.src.report.Err = errors.New("unreachable")
	b.f.snapshot = firewall.Snapshot{}
	b.f.networks = func() []netip.Prefix { return b.memory.adopted }
	b.Pass()
	if d := b.document(); len(d.Networks) != 1 || !d.Networks[0].Layers.Firewall {
		t.Errorf("networks %+v", d.Networks)
	}
}

// TestRestartSparesConnectionsInTheTunnel: the first write of a process that finds its rules deleted opens nothing up for those
// whom nat OUTPUT and the tunnel have carried all the time.
func TestRestartSparesConnectionsInTheTunnel(t *testing.T) {
	old := translating(t)
	old.r.state.Rules = slices.DeleteFunc(old.r.state.Rules, routes.Rule.Ours)
	b := restarted(old, "10.250.0.0/16")
	b.Pass()
	if ended := b.severed.ended; len(ended) > 0 {
		t.Errorf("the restart ended %v, which run through the tunnel", ended)
	}
}

// TestRestartUnderAnotherPolicyKeepsTheSinks: the networks have changed while no agent ran. What was translated is still, and its way
// through the sink must not be cut by longer blackholes until nat OUTPUT has been read.
func TestRestartUnderAnotherPolicyKeepsTheSinks(t *testing.T) {
	b := restarted(translating(t), "10.250.0.0/17", "10.250.192.0/18", "10.252.0.0/16")
	node, other := ranges.Of(netip.MustParsePrefix("10.250.0.7/32")), ranges.Of(netip.MustParsePrefix("10.252.0.7/32"))
	looked := false
	b.f.listing = func() {
		paths, _ := b.r.state.Paths(policy.IPv4, node)
		if !looked && (len(paths) != 1 || paths[0].Fate != routes.Device || paths[0].Link.Name != "lo") {
			t.Errorf("after the first write, before the firewall is read: %+v", paths)
		}
		if paths, _ = b.r.state.Paths(policy.IPv4, other); len(paths) != 1 || paths[0].Fate != routes.Nowhere {
			t.Errorf("a network that nothing translates: %+v", paths)
		}
		looked = true
	}
	b.Pass()
	if !looked {
		t.Error("the firewall was not read")
	}
}

// TestLeakEndsReadiness: both layers stand, and an interface that nobody named leads to nodes all the same.
func TestLeakEndsReadiness(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.r.state.Links = append(b.r.state.Links, routes.Link{Index: 3, Name: "eth1", Up: true})
	b.r.state.Routes = append(b.r.state.Routes, routes.Route{Family: policy.IPv4, Table: routes.TableMain,
		Dst: netip.MustParsePrefix("10.250.7.0/24"), Type: routes.Unicast, Hops: []routes.Hop{{Link: 3}}})
	b.Pass()
	d := b.document()
	if d.Ready || d.Reason != ReasonLeaking || d.Phase != Leaking {
		t.Errorf("ready %v, phase %s, %s: %s", d.Ready, d.Phase, d.Reason, d.Message)
	}
	if n := d.Networks[0]; !n.Layers.Routes || !n.Layers.Firewall {
		t.Errorf("the layers are said to be missing, so this shows nothing: %+v", n)
	}
}
