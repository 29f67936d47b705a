package apiserver

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/shoot/cache"
	"github.com/routefence/routefence/shoot/cluster"
)

// watcher is a source that runs in the test.
type watcher struct {
	t      testing.TB
	source *cluster.Source
	stop   func()
}

// watch runs a source, and its Infrastructure's, until the test ends.
func watch(t testing.TB, ref, kubeconfig, cacheDir string) *watcher {
	t.Helper()
	return watchWith(t, ref, kubeconfig, cacheDir, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)))
}

func watchWith(t testing.TB, ref, kubeconfig, cacheDir string, log *zap.Logger) *watcher {
	t.Helper()
	parsed, err := cluster.ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	access := cluster.Access{Kubeconfig: kubeconfig}
	w := &watcher{t: t, source: cluster.New(cluster.Options{Ref: parsed, Cache: cache.Dir(cacheDir), Log: log,
		Connect: func() (cluster.API, error) { return access.Connect() }})}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.source.Run(ctx, func() {}) })
	if b := w.source.Beside(); b != nil {
		running.Go(func() { b.Run(ctx, func() {}) })
	}
	w.stop = func() { cancel(); running.Wait() }
	t.Cleanup(w.stop)
	return w
}

// names waits until the object names exactly these networks, and returns how long that took.
func (w *watcher) names(within time.Duration, want ...string) time.Duration {
	w.t.Helper()
	return eventually(w.t, within, func() (string, bool) {
		r := w.source.Report()
		return describe(r), slices.Equal(texts(r.Networks), want)
	})
}

// says waits until the trouble that the report tells has all the words.
func (w *watcher) says(within time.Duration, want ...string) time.Duration {
	w.t.Helper()
	return eventually(w.t, within, func() (string, bool) { return words(describe(w.source.Report()), want...) })
}

// healthy waits until there is no trouble.
func (w *watcher) healthy(within time.Duration) time.Duration {
	w.t.Helper()
	return eventually(w.t, within, func() (string, bool) {
		r := w.source.Report()
		return describe(r), r.Known && r.Err == nil && r.Away == nil
	})
}

// holds asserts that the networks are still these, and that the pod may be ready.
func (w *watcher) holds(want ...string) {
	w.t.Helper()
	r := w.source.Report()
	if !slices.Equal(texts(r.Networks), want) || !r.Known || r.Err != nil {
		w.t.Errorf("want %v to hold without doubt, have %s", want, describe(r))
	}
}

func describe(r shoot.Report) string {
	return fmt.Sprintf("%v known=%t err=%v away=%v warnings=%s", r.Networks, r.Known, r.Err, r.Away, strings.Join(r.Warnings, "; "))
}

func texts(prefixes []netip.Prefix) (out []string) {
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}
