package metrics

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func scrape(t *testing.T, collect func(*Page)) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(1, collect).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w
}

// TestAsPrometheusReadsIt: its own parser finds every family with type, help, labels and value, however odd they are.
func TestAsPrometheusReadsIt(t *testing.T) {
	const odd = "a \"b\" \\ c\nd \u00e4"
	up, seen := Gauge("t_up", odd), Counter("t_seen_total", "seen", "where", "what")
	took := NewHistogram("t_seconds", "took", 0.5, 2)
	took.Update(0.25)
	took.Update(7)
	answer := scrape(t, func(p *Page) {
		p.Add(seen, 3, odd, "x\xff")
		p.Add(up, 0.125)
		p.Add(seen, 1e18, "there", "")
		p.Observe(took)
		p.Info("t_build_info", "build", map[string]string{"version": "1", "commit": "2"})
	})
	format := expfmt.ResponseFormat(answer.Header())
	if format.FormatType() != expfmt.TypeTextPlain {
		t.Errorf("format %q", format)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(answer.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"t_up":         "GAUGE " + odd,
		"t_seen_total": "COUNTER seen",
		"t_seconds":    "HISTOGRAM took",
		"t_build_info": "GAUGE build",
		// What dashboards show of any Go program.
		"go_goroutines": "GAUGE ", "go_info": "GAUGE ", "go_gc_duration_seconds": "SUMMARY ", "go_memstats_heap_inuse_bytes": "GAUGE ",
		"process_cpu_seconds_total": "COUNTER ", "process_resident_memory_bytes": "GAUGE ", "process_start_time_seconds": "GAUGE ",
		"process_open_fds": "GAUGE ", "process_max_fds": "GAUGE ",
	} {
		f := families[name]
		if got := f.GetType().String() + " " + f.GetHelp(); f == nil || got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	samples := families["t_seen_total"].GetMetric()
	if len(samples) != 2 || samples[0].GetLabel()[0].GetValue() != odd || samples[0].GetLabel()[1].GetValue() != "x\uFFFD" ||
		samples[0].GetCounter().GetValue() != 3 || samples[1].GetCounter().GetValue() != 1e18 {
		t.Errorf("samples: %v", samples)
	}
	h := families["t_seconds"].GetMetric()[0].GetHistogram()
	if h.GetSampleCount() != 2 || h.GetSampleSum() != 7.25 || len(h.GetBucket()) != 3 || h.GetBucket()[1].GetUpperBound() != 1 ||
		h.GetBucket()[1].GetCumulativeCount() != 1 {
		t.Errorf("histogram: %v", h)
	}
	if start := families["process_start_time_seconds"].GetMetric()[0].GetGauge().GetValue(); time.Since(time.Unix(int64(start), 0)) > time.Hour {
		t.Errorf("started at %v", start)
	}
}

// TestOneFamilyInOnePlace: readers take lines of a family apart from the others for a second one.
func TestOneFamilyInOnePlace(t *testing.T) {
	a, b := Gauge("t_a", "a", "n"), Gauge("t_b", "b")
	text := scrape(t, func(p *Page) { p.Add(a, 1, "1"); p.Add(b, 1); p.Add(a, 2, "2") }).Body.Bytes()
	if want := []byte("# HELP t_a a\n# TYPE t_a gauge\nt_a{n=\"1\"} 1\nt_a{n=\"2\"} 2\n# HELP t_b b\n# TYPE t_b gauge\nt_b 1\n"); !bytes.HasPrefix(text, want) {
		t.Errorf("got %.200s", text)
	}
}

// TestCompressed: for who takes that, it is the same page.
func TestCompressed(t *testing.T) {
	collect := func(p *Page) { p.Add(Gauge("t_up", "up"), 1) }
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept-Encoding", "deflate, gzip")
	Handler(1, collect).ServeHTTP(w, r)
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	if want := []byte("# HELP t_up up\n# TYPE t_up gauge\nt_up 1\n"); err != nil || !bytes.Contains(got, want) || !bytes.Contains(got, []byte("\ngo_goroutines ")) {
		t.Errorf("%v: %s", err, got)
	}
	if plain := scrape(t, collect); plain.Header().Get("Content-Encoding") != "" || !bytes.HasPrefix(plain.Body.Bytes(), []byte("# HELP")) {
		t.Errorf("who does not ask gets %v", plain.Header())
	}
}
