// Package metrics writes metrics in the text that Prometheus reads. Histograms, and what the process and Go's runtime say of themselves,
// come from a library without help texts and without a registry that initialises itself before main.
package metrics

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// Family is what all samples of one name have in common.
type Family struct {
	name, kind, help string
	labels           []string
}

// Gauge returns a family of values that go up and down.
func Gauge(name, help string, labels ...string) Family { return Family{name, "gauge", help, labels} }

// Counter returns a family of values that only go up.
func Counter(name, help string, labels ...string) Family {
	return Family{name, "counter", help, labels}
}

// Page is what one scrape is answered.
type Page struct{ families map[string]*bytes.Buffer }

// Add writes a sample. Samples of a family stand together, whatever comes between them.
func (p *Page) Add(f Family, value float64, labels ...string) {
	b := p.families[f.name]
	if b == nil {
		b = new(bytes.Buffer)
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", f.name, textEscapes.Replace(f.help), f.name, f.kind)
		p.families[f.name] = b
	}
	b.WriteString(f.name)
	for i, name := range f.labels {
		b.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(b, `%s="%s"`, name, labelEscapes.Replace(strings.ToValidUTF8(labels[i], "\uFFFD")))
	}
	if len(f.labels) > 0 {
		b.WriteByte('}')
	}
	fmt.Fprintf(b, " %s\n", strconv.FormatFloat(value, 'g', -1, 64))
}

// The format knows no other escapes.
var (
	textEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// Info writes a gauge of 1 whose labels say something.
func (p *Page) Info(name, help string, labels map[string]string) {
	names := slices.Sorted(maps.Keys(labels))
	values := make([]string, len(names))
	for i, n := range names {
		values[i] = labels[n]
	}
	p.Add(Gauge(name, help, names...), 1, values...)
}

// Histogram counts durations by how long they are.
type Histogram struct {
	*metrics.PrometheusHistogram
	name, help string
	set        *metrics.Set
}

// NewHistogram returns a histogram with buckets that each reach twice as far as the one before.
func NewHistogram(name, help string, first float64, buckets int) Histogram {
	h := Histogram{name: name, help: help, set: metrics.NewSet()}
	h.PrometheusHistogram = h.set.NewPrometheusHistogramExt(name, metrics.ExponentialBuckets(first, 2, buckets))
	return h
}

// Observe writes a histogram.
func (p *Page) Observe(h Histogram) {
	b := new(bytes.Buffer)
	fmt.Fprintf(b, "# HELP %s %s\n", h.name, textEscapes.Replace(h.help))
	h.set.WritePrometheus(helpless{b})
	p.families[h.name] = b
}

// helpless leaves out the library's lines for help, which have none: whether a reader takes a help without a text is up to the reader.
type helpless struct{ to io.Writer }

func (h helpless) Write(text []byte) (int, error) {
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("# HELP ")) {
			continue
		}
		if _, err := h.to.Write(line); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// Handler answers scrapes, no more than some at a time: others get a 503 at once. Each page holds all that was collected.
func Handler(most int, collect func(*Page)) http.Handler {
	metrics.ExposeMetadata(true)
	running := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
		default:
			http.Error(w, fmt.Sprintf("%d scrapes are running: try again later", most), http.StatusServiceUnavailable)
			return
		}
		p := Page{families: map[string]*bytes.Buffer{}}
		collect(&p)
		own := new(bytes.Buffer)
		metrics.WriteGoMetrics(own)
		metrics.WriteProcMetrics(own)
		metrics.WriteFDMetrics(own)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		out := io.Writer(w)
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") { // a node network takes three lines, which differ little
			w.Header().Set("Content-Encoding", "gzip")
			compressed := gzip.NewWriter(w)
			defer compressed.Close()
			out = compressed
		}
		for _, name := range slices.Sorted(maps.Keys(p.families)) {
			if _, err := out.Write(p.families[name].Bytes()); err != nil {
				return // the client has gone away: there is nobody to tell
			}
		}
		_, _ = helpless{out}.Write(own.Bytes()) // likewise
	})
}
