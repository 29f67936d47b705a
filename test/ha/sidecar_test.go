//go:build vm

package ha

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// patience is how long a test waits for what must come. Guests are slow; nothing here is about speed.
const patience = 60 * time.Second

// document is the part of the state that these tests look at.
type document struct {
	Phase, Reason, Message string
	Ready                  bool
	Networks               []struct{ CIDR, State, Interface, Cause string }
	Firewall               struct{ Backend string }
}

// sidecar is a running "routefence run".
type sidecar struct {
	*rig.Process
	t *testing.T
	b *bench
}

// fence runs the agent until it is ready.
func (b *bench) fence(backend string, args ...string) *sidecar {
	b.t.Helper()
	line := append([]string{program, "run", "--node-networks=10.250.0.0/16,fd00:250::/48", "--firewall=" + backend}, args...)
	s := &sidecar{b.Start(line...), b.t, b}
	s.await("the agent is ready", func(d document) bool { return d.Ready })
	return s
}

// state returns an empty document as long as nobody answers.
func (s *sidecar) state() (d document) {
	response, err := s.b.Pod.HTTP().Get("http://127.0.0.1:9604/state")
	if err != nil {
		return d
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&d); err != nil {
		s.t.Logf("/state: %v", err)
	}
	return d
}

// await waits until the state is as wanted, and returns it.
func (s *sidecar) await(what string, want func(document) bool) document {
	s.t.Helper()
	var d document
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if d = s.state(); want(d) {
			return d
		}
		if !s.Running() {
			break
		}
	}
	s.t.Fatalf("never seen that %s\nstate: %+v\nlog: %s", what, d, s.Output())
	return d
}

// phase waits for a phase of a ready agent. Tunneled networks must name their device.
func (s *sidecar) phase(phase string) {
	s.t.Helper()
	d := s.await("the phase is "+phase, func(d document) bool { return d.Ready && d.Phase == phase })
	for _, n := range d.Networks {
		want := tunnel
		if n.CIDR == farBonds {
			want = "bond0"
		}
		if n.State == "Tunneled" && n.Interface != want {
			s.t.Errorf("%s is Tunneled through %q, want %s", n.CIDR, n.Interface, want)
		}
	}
}
