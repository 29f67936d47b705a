package health

import (
	"sync"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/metrics"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/verdict"
)

// Counters reads how many packets the kernel's own rules have refused. It leaves out a family that it cannot read.
type Counters interface {
	Rejected() (map[policy.Family]uint64, error)
}

// Metrics are computed from the state when they are asked for, so they can say nothing that the state does not.
type Metrics struct {
	build    map[string]string
	states   States
	counters Counters
	passes   metrics.Histogram

	// The kernel's counters start anew when a chain is written anew; ours must not go back.
	mu       sync.Mutex
	last     map[policy.Family]uint64
	rejected map[policy.Family]uint64
}

var (
	ready        = metrics.Gauge("routefence_ready", "Whether the agent is ready (1) or not (0).")
	phase        = metrics.Gauge("routefence_phase", "The phase the agent is in: 1 for that one, 0 for the others.", "phase")
	networkState = metrics.Gauge("routefence_network_state", "What happens to packets for a node network: 1 for that state, 0 for the others.", "cidr", "state")
	repairs      = metrics.Counter("routefence_repairs_total", "Passes that had to put back something that had stood.", "layer")
	rejected     = metrics.Counter("routefence_rejected_packets_total", "Packets that tried to leave and were refused by the fence's firewall rules.", "family")
	severed      = metrics.Counter("routefence_connections_severed_total", "TCP connections to nodes that were ended because they ran outside of the tunnel, or because that is gone.")
	healthy      = metrics.Gauge("routefence_source_healthy", "Whether a source of node networks could be read and understood.", "source")
	changed      = metrics.Gauge("routefence_source_last_change_timestamp_seconds", "When a source last named other networks.", "source")
	verified     = metrics.Gauge("routefence_verified_timestamp_seconds", "When the kernel was last read back.")
)

// NewMetrics returns the metrics of an agent. Build are the labels of routefence_build_info.
func NewMetrics(build map[string]string, c Counters) *Metrics {
	return &Metrics{
		build:    build,
		counters: c,
		passes:   metrics.NewHistogram("routefence_pass_duration_seconds", "How long passes over the kernel took.", 0.001, 14),
		last:     map[policy.Family]uint64{},
		rejected: map[policy.Family]uint64{},
	}
}

// Watch says whose state the metrics show. It must be called before the first scrape.
func (m *Metrics) Watch(s States) { m.states = s }

// Passed counts a pass.
func (m *Metrics) Passed(took time.Duration) { m.passes.Update(took.Seconds()) }

func (m *Metrics) collect(p *metrics.Page) {
	d := m.states.State().At(time.Now())
	p.Info("routefence_build_info", "The build that runs; always 1.", m.build)
	p.Observe(m.passes)
	p.Add(ready, truth(d.Ready))
	for _, one := range agent.Phases {
		p.Add(phase, truth(d.Phase == one), string(one))
	}
	for _, n := range d.Networks {
		for _, s := range []verdict.State{verdict.Tunneled, verdict.Blocked, verdict.Leaking} {
			p.Add(networkState, truth(n.State == s), n.CIDR, string(s))
		}
	}
	p.Add(repairs, float64(d.Repairs.Routes), "routes")
	p.Add(repairs, float64(d.Repairs.Firewall), "firewall")
	p.Add(severed, float64(d.Severed))
	for _, s := range d.Sources {
		p.Add(healthy, truth(s.Healthy), s.Name)
		if s.LastChange != nil {
			p.Add(changed, seconds(*s.LastChange), s.Name)
		}
	}
	if d.VerifiedAt != nil {
		p.Add(verified, seconds(*d.VerifiedAt))
	}
	refused := m.refused()
	for _, f := range policy.Families {
		p.Add(rejected, float64(refused[f]), f.String())
	}
}

// refused returns the packets refused since the start of this process plus what the kernel had counted by then.
func (m *Metrics) refused() map[policy.Family]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, _ := m.counters.Rejected() // what cannot be read keeps its last value; the state says why
	out := map[policy.Family]uint64{}
	for _, f := range policy.Families {
		if n, read := now[f]; read {
			if n >= m.last[f] {
				m.rejected[f] += n - m.last[f]
			} else {
				m.rejected[f] += n
			}
			m.last[f] = n
		}
		out[f] = m.rejected[f]
	}
	return out
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
