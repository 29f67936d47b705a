package fence

import (
	"net/netip"
	"testing"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/firewall/xtables"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/routefence/routefence/test/rig"
	"go.uber.org/zap"
)

// writer makes the writes of the product one by one, as an agent does that is killed between two of them.
type writer struct {
	t        *testing.T
	r        *rig.Rig
	backend  string
	routes   *rtnl.Kernel
	firewall *xtables.Kernel
}

// step is one write.
type step struct {
	text  string
	apply func() error
}

func newWriter(t *testing.T, r *rig.Rig, backend string) *writer {
	t.Helper()
	w := &writer{t: t, r: r, backend: backend}
	w.do("open the edges", func() (err error) {
		w.routes, err = rtnl.New()
		w.firewall = xtables.New(backend, nfnetlink.Conn{}, zap.NewNop())
		return err
	})
	return w
}

func (w *writer) do(what string, f func() error) {
	w.t.Helper()
	if err := w.r.Pod.Do(f); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// towards returns the writes that lead from the kernel as it is to the fence for some networks.
func (w *writer) towards(networks ...string) (steps []step) {
	w.t.Helper()
	var prefixes []netip.Prefix
	for _, n := range networks {
		prefixes = append(prefixes, netip.MustParsePrefix(n))
	}
	p := policy.New(prefixes, nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0", "bond0*"})
	w.do("compute the writes", func() error {
		s, err := w.routes.List()
		if err != nil {
			return err
		}
		chains, err := w.firewall.Refresh()
		if err != nil {
			return err
		}
		var links []string
		for _, l := range s.Links {
			links = append(links, l.Name)
		}
		rules := firewall.Desired(p, firewall.Options{Lacks: chains.Lacks, Links: links})
		steps = w.steps(routes.Diff(routes.Desired(p, nil, s), s), firewall.Diff(rules, chains))
		return nil
	})
	return steps
}

// away returns the writes of a cleanup.
func (w *writer) away() (steps []step) {
	w.t.Helper()
	w.do("compute the writes", func() error {
		s, err := w.routes.List()
		if err != nil {
			return err
		}
		chains, err := w.firewall.Read()
		steps = w.steps(routes.Remove(s), firewall.Remove(chains))
		return err
	})
	return steps
}

func (w *writer) steps(routing []routes.Change, filtering []firewall.Change) []step {
	var out []step
	for _, c := range routing {
		out = append(out, step{c.String(), func() error { return w.routes.Apply([]routes.Change{c}) }})
	}
	for _, c := range filtering {
		out = append(out, step{c.String(), func() error {
			return w.firewall.Apply([]firewall.Change{c})
		}})
	}
	return out
}

// apply makes writes.
func (w *writer) apply(steps ...step) {
	w.t.Helper()
	for _, s := range steps {
		w.do(s.text, s.apply)
	}
}
