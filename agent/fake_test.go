package agent

import (
	"context"
	"net/netip"
	"slices"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"golang.org/x/sys/unix"
)

// The fakes stand in for a kernel that fails on demand, which the real one cannot be made to do. What a healthy kernel does
// with the same changes is tested on the real one, in test/.

// fakeRoutes applies changes to a State.
type fakeRoutes struct {
	state    routes.State
	listErr  error
	applyErr error
	writes   int
}

func (f *fakeRoutes) List() (routes.State, error) {
	s := f.state
	s.Links, s.Rules, s.Routes = slices.Clone(s.Links), slices.Clone(s.Rules), slices.Clone(s.Routes)
	return s, f.listErr
}

func (f *fakeRoutes) Apply(changes []routes.Change) error {
	if f.applyErr != nil {
		return f.applyErr
	}
	for _, c := range changes {
		f.writes++
		if err := f.make(c); err != nil {
			return err
		}
	}
	return nil
}

// make makes one change as the kernel does, which holds one route for a table, a destination and a metric.
func (f *fakeRoutes) make(c routes.Change) error {
	there := func(r routes.Route) bool {
		return r.Dst == c.Route.Dst && r.Table == c.Route.Table && r.Metric == c.Route.Metric
	}
	link := slices.IndexFunc(f.state.Links, func(l routes.Link) bool { return l.Name == c.Link.Name })
	switch c.Op {
	case routes.AddRoute:
		if slices.ContainsFunc(f.state.Routes, there) {
			return unix.EEXIST
		}
		f.state.Routes = append(f.state.Routes, c.Route)
	case routes.ReplaceRoute:
		f.state.Routes = append(slices.DeleteFunc(f.state.Routes, there), c.Route)
	case routes.DelRoute:
		f.state.Routes = slices.DeleteFunc(f.state.Routes, there)
	case routes.AddRule:
		f.state.Rules = append(f.state.Rules, c.Rule)
		slices.SortStableFunc(f.state.Rules, func(a, b routes.Rule) int { return int(a.Priority) - int(b.Priority) })
	case routes.DelRule:
		if i := slices.Index(f.state.Rules, c.Rule); i >= 0 {
			f.state.Rules = slices.Delete(f.state.Rules, i, i+1)
		}
	case routes.SaveGroup:
		f.state.Links[link].Saved = &c.Group
	case routes.ForgetGroup:
		f.state.Links[link].Saved = nil
	case routes.SetGroup:
		f.state.Links[link].Group = c.Group
	}
	return nil
}

// fakeFirewall takes every change set to be what makes the rules for its networks stand.
type fakeFirewall struct {
	networks func() []netip.Prefix
	snapshot firewall.Snapshot
	// nat are the rules of nat OUTPUT.
	nat      []firewall.Rule
	listErr  error
	applyErr error
	writes   int
	// applying is called before a change is made, listing before a list is.
	applying, listing func()
}

// mapNat puts the rules of nat OUTPUT into the snapshot.
func (f *fakeFirewall) mapNat() {
	if f.snapshot.Tables == nil {
		f.snapshot.Tables = firewall.Tables{}
	}
	if len(f.nat) > 0 {
		f.snapshot.Tables[firewall.Table{Family: policy.IPv4, Name: "nat"}] = map[string]firewall.Chain{"OUTPUT": {Policy: "ACCEPT", Rules: f.nat}}
	}
}

func (f *fakeFirewall) List() (firewall.Snapshot, error) {
	if f.listing != nil {
		f.listing()
	}
	return f.snapshot, f.listErr
}

func (f *fakeFirewall) Apply([]firewall.Change) error {
	if f.applyErr != nil {
		return f.applyErr
	}
	f.writes++
	if f.applying != nil {
		f.applying()
	}
	p := policy.New(f.networks(), nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0"})
	f.snapshot = firewall.Snapshot{Backend: firewall.NFT, Tables: firewall.Tables{}}
	f.mapNat()
	want := firewall.Desired(p, firewall.Options{Links: []string{"lo", "eth0"}, Translations: f.snapshot.Translations(p)})
	f.snapshot.Sets = want.Sets
	for _, fence := range want.Fences {
		chains := map[string]firewall.Chain{firewall.ChainName: {Rules: fence.Rules}}
		for _, base := range fence.Bases {
			jump := firewall.Rule{Target: firewall.ChainName, Comment: "routefence"}
			chains[base] = firewall.Chain{Policy: "ACCEPT", Rules: []firewall.Rule{jump}}
		}
		f.snapshot.Tables[fence.Table] = chains
	}
	return nil
}

// fakeSource says what the test wants.
type fakeSource struct {
	report  shoot.Report
	changed chan struct{}
}

func (f *fakeSource) Report() shoot.Report { return f.report }

func (f *fakeSource) Run(ctx context.Context, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
			changed()
		}
	}
}

// fakeConnections has connections to a node and to something else, of sockets that are bound to no link, to eth0 and to another
// link, the last of which came in, and notes which it was asked to end and to forget.
type fakeConnections struct {
	ended     []connection
	forgotten []string
}

// connected are the peers of its connections, connectedBy the links of their sockets.
var (
	connected   = []string{"10.250.0.7", "10.9.9.9"}
	connectedBy = [...]int{0, 2, 3}
)

type connection struct {
	peer string
	link int
}

func (f *fakeConnections) Sever(meant func(peer netip.Addr, link int, incoming bool) bool) (int, error) {
	before := len(f.ended)
	for _, peer := range connected {
		for i, link := range connectedBy {
			if meant(netip.MustParseAddr(peer), link, i == 2) {
				f.ended = append(f.ended, connection{peer, link})
			}
		}
	}
	return len(f.ended) - before, nil
}

func (f *fakeConnections) Forget(meant func(peer netip.Addr) bool) (int, error) {
	before := len(f.forgotten)
	for _, peer := range connected {
		if meant(netip.MustParseAddr(peer)) {
			f.forgotten = append(f.forgotten, peer)
		}
	}
	return len(f.forgotten) - before, nil
}
