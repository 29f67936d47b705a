package main

import (
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/routefence/routefence/admission"
	"github.com/routefence/routefence/pki/rotation"
)

// metrics are the webhook's own.
type metrics struct {
	registry *prometheus.Registry
	reviews  *prometheus.CounterVec
	duration prometheus.Histogram
}

const prefix = "routefence_webhook_"

func newMetrics(k *rotation.Keeper) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "reviews_total",
			Help: "AdmissionReviews answered, by what came of them."}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "review_duration_seconds",
			Help: "How long reviews took.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14)}),
	}
	for _, o := range []admission.Outcome{admission.Changed, admission.Refused, admission.Undecided, admission.Panicked} {
		m.reviews.WithLabelValues(string(o)) // from the start, so that the first one is an increase
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "build_info", Help: "The build that runs; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "goversion": runtime.Version()}})
	info.Set(1)
	m.registry.MustRegister(m.reviews, m.duration, info, certificates{k}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

func (m *metrics) reviewed(o admission.Outcome) { m.reviews.WithLabelValues(string(o)).Inc() }

func (m *metrics) timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		defer func() { m.duration.Observe(time.Since(begin).Seconds()) }()
		next.ServeHTTP(w, r)
	})
}

// certificates are computed from the keeper's state when they are asked for.
type certificates struct{ keeper *rotation.Keeper }

var (
	expiry = prometheus.NewDesc(prefix+"certificate_expiry_seconds",
		"Seconds until a certificate expires: the one served with, and the newest authority. Below 30% of its life something is wrong.",
		[]string{"certificate"}, nil)
	trusted = prometheus.NewDesc(prefix+"trusted", "Whether the live configuration trusts the serving certificate (1) or not (0).", nil, nil)
	written = prometheus.NewDesc(prefix+"ca_bundle_writes_total", "Times the caBundle of the live configuration was put right.", nil, nil)
	made    = prometheus.NewDesc(prefix+"certificates_made_total", "Certificates made by this process.", []string{"certificate"}, nil)
)

func (c certificates) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{expiry, trusted, written, made} {
		out <- d
	}
}

func (c certificates) Collect(out chan<- prometheus.Metric) {
	s := c.keeper.State()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	if s.Serving != nil {
		gauge(expiry, time.Until(s.Serving.Leaf.NotAfter).Seconds(), "serving")
	}
	if s.Authority != nil {
		gauge(expiry, time.Until(s.Authority.NotAfter).Seconds(), "authority")
	}
	ok := 0.0
	if c.keeper.Ready() == nil {
		ok = 1
	}
	gauge(trusted, ok)
	counter(written, s.Repairs)
	counter(made, s.Issued, "serving")
	counter(made, s.Authorities, "authority")
}
