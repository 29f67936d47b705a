package health

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/verdict"
)

// Counters reads how many packets the kernel's own rules have refused. It leaves out a family that it cannot read.
type Counters interface {
	Rejected() (map[policy.Family]uint64, error)
}

// Metrics are computed from the state when they are asked for, so they can say nothing that the state does not.
type Metrics struct {
	registry *prometheus.Registry
	states   States
	counters Counters
	passes   prometheus.Histogram

	// The kernel's counters start anew when a chain is written anew; ours must not go back.
	mu       sync.Mutex
	last     map[policy.Family]uint64
	rejected map[policy.Family]uint64
}

var (
	ready        = desc("ready", "Whether the agent is ready (1) or not (0).")
	phase        = desc("phase", "The phase the agent is in: 1 for that one, 0 for the others.", "phase")
	networkState = desc("network_state", "What happens to packets for a node network: 1 for that state, 0 for the others.", "cidr", "state")
	repairs      = desc("repairs_total", "Passes that had to put back something that had stood.", "layer")
	rejected     = desc("rejected_packets_total", "Packets that tried to leave and were refused by the fence's firewall rules.", "family")
	severed      = desc("connections_severed_total", "TCP connections to nodes that were ended because they ran outside of the tunnel, or because that is gone.")
	healthy      = desc("source_healthy", "Whether a source of node networks could be read and understood.", "source")
	changed      = desc("source_last_change_timestamp_seconds", "When a source last named other networks.", "source")
	verified     = desc("verified_timestamp_seconds", "When the kernel was last read back.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("routefence_"+name, help, labels, nil)
}

// NewMetrics returns the metrics of an agent. Build are the labels of routefence_build_info.
func NewMetrics(build map[string]string, c Counters) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		counters: c,
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "routefence_pass_duration_seconds",
			Help: "How long passes over the kernel took.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
		last:     map[policy.Family]uint64{},
		rejected: map[policy.Family]uint64{},
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "routefence_build_info", Help: "The build that runs; always 1.", ConstLabels: build})
	info.Set(1)
	m.registry.MustRegister(m, m.passes, info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Watch says whose state the metrics show. It must be called before the first scrape.
func (m *Metrics) Watch(s States) { m.states = s }

// Passed counts a pass.
func (m *Metrics) Passed(took time.Duration) { m.passes.Observe(took.Seconds()) }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ready, phase, networkState, repairs, rejected, severed, healthy, changed, verified} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	d := m.states.State().At(time.Now())
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	counter := func(desc *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(ready, truth(d.Ready))
	for _, p := range agent.Phases {
		gauge(phase, truth(d.Phase == p), string(p))
	}
	for _, n := range d.Networks {
		for _, s := range []verdict.State{verdict.Tunneled, verdict.Blocked, verdict.Leaking} {
			gauge(networkState, truth(n.State == s), n.CIDR, string(s))
		}
	}
	counter(repairs, d.Repairs.Routes, "routes")
	counter(repairs, d.Repairs.Firewall, "firewall")
	counter(severed, d.Severed)
	for _, s := range d.Sources {
		gauge(healthy, truth(s.Healthy), s.Name)
		if s.LastChange != nil {
			gauge(changed, seconds(*s.LastChange), s.Name)
		}
	}
	if d.VerifiedAt != nil {
		gauge(verified, seconds(*d.VerifiedAt))
	}
	for family, n := range m.refused() {
		counter(rejected, n, family.String())
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
