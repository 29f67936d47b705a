//go:build vm

package ha

import (
	"time"

	"github.com/routefence/routefence/test/shipped"
)

// patience is how long a test waits for what must come. Guests are slow; nothing here is about speed.
const patience = 60 * time.Second

type document = shipped.Document

// sidecar is a running "routefence run".
type sidecar struct{ *shipped.Agent }

// fence runs the agent until it is ready.
func (b *bench) fence(backend string, args ...string) *sidecar {
	b.t.Helper()
	s := &sidecar{shipped.Start(b.t, b.Pod, append([]string{shipped.BothNetworks, "--firewall=" + backend}, args...)...)}
	s.Patience = patience
	s.AwaitReady()
	return s
}

// phase waits for a phase of a ready agent. Tunneled networks must name their device.
func (s *sidecar) phase(phase string) {
	s.T.Helper()
	d := s.Await("the phase is "+phase, func(d document) bool { return d.Ready && d.Phase == phase })
	for _, n := range d.Networks {
		want := tunnel
		if n.CIDR == farBonds {
			want = "bond0"
		}
		if n.State == "Tunneled" && n.Interface != want {
			s.T.Errorf("%s is Tunneled through %q, want %s", n.CIDR, n.Interface, want)
		}
	}
}
