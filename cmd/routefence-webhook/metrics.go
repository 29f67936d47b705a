package main

import (
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/routefence/routefence/admission"
	"github.com/routefence/routefence/metrics"
	"github.com/routefence/routefence/pki/rotation"
)

// figures are the webhook's own metrics.
type figures struct {
	keeper   *rotation.Keeper
	duration metrics.Histogram

	mu      sync.Mutex
	reviews map[admission.Outcome]uint64
}

const prefix = "routefence_webhook_"

var (
	reviews = metrics.Counter(prefix+"reviews_total", "AdmissionReviews answered, by what came of them.", "outcome")
	expiry  = metrics.Gauge(prefix+"certificate_expiry_seconds",
		"Seconds until a certificate expires: the one served with, and the newest authority. Below 30% of its life something is wrong.", "certificate")
	trusted = metrics.Gauge(prefix+"trusted", "Whether the live configuration trusts the serving certificate (1) or not (0).")
	written = metrics.Counter(prefix+"ca_bundle_writes_total", "Times the caBundle of the live configuration was put right.")
	made    = metrics.Counter(prefix+"certificates_made_total", "Certificates made by this process.", "certificate")
)

func newFigures(k *rotation.Keeper) *figures {
	return &figures{
		keeper:   k,
		duration: metrics.NewHistogram(prefix+"review_duration_seconds", "How long reviews took.", 0.0005, 14),
		// From the start, so that the first one is an increase.
		reviews: map[admission.Outcome]uint64{admission.Changed: 0, admission.Refused: 0, admission.Undecided: 0, admission.Panicked: 0},
	}
}

func (m *figures) handler() http.Handler { return metrics.Handler(4, m.collect) }

func (m *figures) reviewed(o admission.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reviews[o]++
}

func (m *figures) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		defer func() { m.duration.UpdateDuration(begin) }()
		next.ServeHTTP(w, r)
	})
}

// collect computes from the keeper's state when it is asked.
func (m *figures) collect(p *metrics.Page) {
	p.Info(prefix+"build_info", "The build that runs; always 1.",
		map[string]string{"version": version, "commit": commit, "goversion": runtime.Version()})
	m.mu.Lock()
	counted := maps.Clone(m.reviews)
	m.mu.Unlock()
	for _, o := range slices.Sorted(maps.Keys(counted)) {
		p.Add(reviews, float64(counted[o]), string(o))
	}
	p.Observe(m.duration)
	s := m.keeper.State()
	if s.Serving != nil {
		p.Add(expiry, time.Until(s.Serving.Leaf.NotAfter).Seconds(), "serving")
	}
	if s.Authority != nil {
		p.Add(expiry, time.Until(s.Authority.NotAfter).Seconds(), "authority")
	}
	ok := 0.0
	if m.keeper.Ready() == nil {
		ok = 1
	}
	p.Add(trusted, ok)
	p.Add(written, float64(s.Repairs))
	p.Add(made, float64(s.Issued), "serving")
	p.Add(made, float64(s.Authorities), "authority")
}
