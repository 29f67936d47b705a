package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/routefence/routefence/admission"
	"github.com/routefence/routefence/pki/rotation"
	"github.com/routefence/routefence/test/gardener"
)

// reviewOf is an update of a workload as the API server sends it: with the object twice.
func reviewOf(tb testing.TB, name string) []byte {
	tb.Helper()
	tree := gardener.Get(name).Tree()
	text, err := json.Marshal(map[string]any{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": map[string]any{
		"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": map[string]any{"group": "apps", "version": "v1", "kind": tree["kind"]},
		"operation": "UPDATE", "namespace": technicalID, "name": name, "object": tree, "oldObject": tree}})
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

// canned reads a review and always gives the same answer: the floor of what HTTP and TLS cost.
func canned(tb testing.TB, like []byte) http.Handler {
	tb.Helper()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(like)
	})
}

// answering is the webhook as it is served, but for an API server that has always answered already.
func answering() http.Handler {
	spareGC()
	m := newFigures(rotation.New(rotation.Options{}))
	j := judging(func(context.Context, string) (facts, error) { return facts{enforce: "privileged"}, nil })
	return m.timed(admission.NewHandler(admission.Options{Judge: j.decide, Kinds: []string{"apps/v1/Deployment", "apps/v1/StatefulSet"},
		Observe: m.reviewed, Log: zap.NewNop()}))
}

// caller speaks TLS and HTTP/2 on one connection, as an API server does.
type caller struct {
	tb     testing.TB
	server *httptest.Server
	body   []byte
}

func call(tb testing.TB, h http.Handler, body []byte) *caller {
	tb.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	tb.Cleanup(s.Close)
	c := &caller{tb, s, body}
	c.once()
	return c
}

func (c *caller) once() []byte {
	response, err := c.server.Client().Post(c.server.URL, "application/json", bytes.NewReader(c.body))
	if err != nil {
		c.tb.Error(err)
		return nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		c.tb.Errorf("HTTP status %d, %v", response.StatusCode, err)
	}
	return text
}

// paced sends n reviews, a thousand a second whether or not the ones before are answered, and returns how long each took.
func (c *caller) paced(n int) []time.Duration {
	took := make([]time.Duration, n)
	var all sync.WaitGroup
	begin := time.Now()
	for i := range n {
		due := begin.Add(time.Duration(i) * time.Millisecond)
		time.Sleep(time.Until(due))
		all.Go(func() {
			c.once()
			took[i] = time.Since(due)
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// A thousand reviews a second, each of a whole kube-apiserver Deployment, beside an HTTP handler that only says the same each time. Caller and
// server share the process and its cores.
func BenchmarkThousandReviewsASecond(b *testing.B) {
	body := reviewOf(b, "kube-apiserver-ha-overlap")
	webhook := call(b, answering(), body)
	for name, c := range map[string]*caller{"floor": call(b, canned(b, webhook.once()), body), "webhook": webhook} {
		b.Run(name, func(b *testing.B) {
			before, used := heap(), cpu(b)
			took := c.paced(b.N)
			used = cpu(b) - used
			at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Microseconds()) / 1000 }
			b.ReportMetric(at(.5), "p50-ms")
			b.ReportMetric(at(.99), "p99-ms")
			b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/review")
			b.ReportMetric(heap()-before, "heap-growth-MiB")
			b.SetBytes(int64(len(body)))
		})
	}
}

// As many reviews as two cores can do.
func BenchmarkReviews(b *testing.B) {
	body := reviewOf(b, "kube-apiserver-ha-overlap")
	webhook := call(b, answering(), body)
	for name, c := range map[string]*caller{"floor": call(b, canned(b, webhook.once()), body), "webhook": webhook} {
		b.Run(name, func(b *testing.B) {
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					c.once()
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reviews/s")
		})
	}
}

// What is benchmarked is a review that ends in the fence.
func TestBenchmarkedReviewIsChanged(t *testing.T) {
	c := call(t, answering(), reviewOf(t, "kube-apiserver-ha-overlap"))
	var e struct {
		Response struct {
			Allowed bool
			Patch   []byte
		}
	}
	if err := json.Unmarshal(c.once(), &e); err != nil || !e.Response.Allowed || !bytes.Contains(e.Response.Patch, []byte("/usr/bin/routefence")) && !bytes.Contains(e.Response.Patch, []byte("startupz")) {
		t.Errorf("%v %+v %s", err, e.Response.Allowed, e.Response.Patch)
	}
}
