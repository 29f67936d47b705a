package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"go.uber.org/zap"

	"github.com/routefence/routefence/shoot"
)

// script is an API server that does what a test says, on a clock that stands still meanwhile. What a real one does is tested in
// test/apiserver; hours of failures cannot be waited for there.
type script struct {
	list  func(ctx context.Context) (io.ReadCloser, error)
	watch func(ctx context.Context, query url.Values) (io.ReadCloser, error)

	mu       sync.Mutex
	lists    []time.Time
	watches  []url.Values
	connects int
	closed   int
}

func (s *script) Get(ctx context.Context, _ string, query url.Values) (io.ReadCloser, error) {
	s.mu.Lock()
	if query.Get("watch") == "" {
		s.lists = append(s.lists, time.Now())
		s.mu.Unlock()
		return s.list(ctx)
	}
	s.watches = append(s.watches, query)
	s.mu.Unlock()
	return s.watch(ctx, query)
}

func (s *script) Close() { s.closed++ }

// mute is a body that says nothing until ctx ends.
type mute struct{ ctx context.Context }

func (m mute) Read([]byte) (int, error) { <-m.ctx.Done(); return 0, m.ctx.Err() }
func (m mute) Close() error             { return nil }

func answer(text string) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

func listOf(items ...string) string {
	return `{"kind":"ClusterList","metadata":{"resourceVersion":"9"},"items":[` + strings.Join(items, ",") + `]}`
}

// obedient is a watch that ends when it was asked to.
func obedient(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	seconds, err := time.ParseDuration(query.Get("timeoutSeconds") + "s")
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	go func() {
		select {
		case <-ctx.Done():
			in.CloseWithError(ctx.Err())
		case <-time.After(seconds):
			fmt.Fprint(in, `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}`)
			in.Close()
		}
	}()
	return out, nil
}

// none is a cache that keeps nothing.
type none struct{}

func (none) Load(string) (shoot.Statement, bool, error) { return shoot.Statement{}, false, nil }
func (none) Save(shoot.Statement) error                 { return nil }

// play runs a source on a script for some time and returns its last report.
func play(t *testing.T, s *script, length time.Duration, meanwhile func(*Source)) {
	t.Helper()
	source := New(Options{Ref: one, Cache: none{}, Log: zap.NewNop(), Connect: func() (API, error) { s.connects++; return s, nil }})
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); source.Run(ctx, func() {}) }()
	meanwhile(source)
	<-done
	if s.connects != s.closed {
		t.Errorf("%d connections made, %d closed", s.connects, s.closed)
	}
}

func TestIdleWatchIsWatchedOnWithoutAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{list: answer(listOf(clusterJSON("u1", 5, "10.1.0.0/16", ""))), watch: obedient}
		play(t, s, time.Hour, func(*Source) {})
		if len(s.lists) != 1 || len(s.watches) < 140 || len(s.watches) > 200 {
			t.Errorf("%d lists and %d watches in an hour", len(s.lists), len(s.watches))
		}
		if first, second := s.watches[0].Get("resourceVersion"), s.watches[1].Get("resourceVersion"); first != "9" || second != "12" {
			t.Errorf("watches from %s, then from %s", first, second)
		}
	})
}

// Whatever fails, for however long: a list a pause, and pauses that grow to half a minute.
func TestOneListAPause(t *testing.T) {
	gone := func(context.Context, url.Values) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}`)), nil
	}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "clusters"}, "x", errors.New("no"))
	good := answer(listOf(clusterJSON("u1", 5, "10.1.0.0/16", "")))
	for name, c := range map[string]struct {
		script *script
		want   string
	}{
		"no connection":      {&script{list: func(context.Context) (io.ReadCloser, error) { return nil, errors.New("reset") }}, "NotUnderstood"},
		"forbidden":          {&script{list: func(context.Context) (io.ReadCloser, error) { return nil, refused }}, "Forbidden"},
		"410 on every watch": {&script{list: good, watch: gone}, "Expired"},
		"watch ends at once": {&script{list: good, watch: func(context.Context, url.Values) (io.ReadCloser, error) { return answer("")(nil) }}, "ConnectionLost"},
		"nonsense":           {&script{list: answer("<html>")}, "NotUnderstood"},
		"no list":            {&script{list: answer(`{"kind":"Status"}`)}, "NotUnderstood"},
		"garbage in a watch": {&script{list: good, watch: func(context.Context, url.Values) (io.ReadCloser, error) { return answer("<html>")(nil) }}, "NotUnderstood"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				play(t, c.script, 10*time.Minute, func(s *Source) {
					time.Sleep(30 * time.Second)
					synctest.Wait()
					r := s.Report()
					if _, ok := strings.CutPrefix(text(r.Err)+text(r.Away), c.want+" of cluster/"); !ok {
						t.Errorf("within 30 s the report says err=%v away=%v, want %s", r.Err, r.Away, c.want)
					}
				})
				if n := len(c.script.lists); n < 20 || n > 48 {
					t.Errorf("%d lists in ten minutes", n)
				}
				for i, at := range c.script.lists[1:] {
					if pause := at.Sub(c.script.lists[i]); pause < 250*time.Millisecond || pause > 31*time.Second {
						t.Errorf("pause %d is %s", i, pause)
					}
				}
			})
		})
	}
}

// A list that works is no sign of health as long as every watch fails: the state must not come and go.
func TestTroubleStaysNamedWhileWatchesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var working atomic.Bool
		s := &script{list: answer(listOf(clusterJSON("u1", 5, "10.1.0.0/16", "")))}
		s.watch = func(ctx context.Context, query url.Values) (io.ReadCloser, error) {
			if working.Load() {
				return obedient(ctx, query)
			}
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "clusters"}, "x", errors.New("no"))
		}
		play(t, s, 10*time.Minute, func(source *Source) {
			time.Sleep(time.Second)
			for range 600 {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if r := source.Report(); r.Away == nil || !r.Known {
					t.Fatalf("out of trouble: %+v", r)
				}
			}
			working.Store(true)
			time.Sleep(maxPause + proof)
			synctest.Wait()
			if r := source.Report(); r.Away != nil {
				t.Errorf("still in trouble: %v", r.Away)
			}
			// What was long ago does not make the next pause longer.
			working.Store(false)
			time.Sleep(watchTime + grace)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			last := len(s.lists)
			if since := s.lists[last-1].Sub(s.lists[last-2]); since > maxPause/2 {
				t.Errorf("a pause of %s after a time without failures", since)
			}
		})
	})
}

func TestSilence(t *testing.T) {
	silentBody := func(ctx context.Context) (io.ReadCloser, error) { return mute{ctx}, nil }
	silentStart := func(ctx context.Context) (io.ReadCloser, error) { <-ctx.Done(); return nil, ctx.Err() }
	good := answer(listOf(clusterJSON("u1", 5, "10.1.0.0/16", "")))
	for name, c := range map[string]struct {
		script *script
		want   string
		within time.Duration
	}{
		"list without end":       {&script{list: silentBody}, "TimedOut", 11 * time.Second},
		"list without beginning": {&script{list: silentStart}, "TimedOut", 11 * time.Second},
		"watch without answer":   {&script{list: good, watch: func(ctx context.Context, _ url.Values) (io.ReadCloser, error) { return silentStart(ctx) }}, "TimedOut", 11 * time.Second},
		"watch without end":      {&script{list: good, watch: func(ctx context.Context, _ url.Values) (io.ReadCloser, error) { return silentBody(ctx) }}, "Silent", 31 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				play(t, c.script, 5*time.Minute, func(s *Source) {
					begin := time.Now()
					for time.Since(begin) < c.within {
						time.Sleep(100 * time.Millisecond)
						synctest.Wait()
						if r := s.Report(); strings.HasPrefix(text(r.Err)+text(r.Away), c.want+" of cluster/") {
							return
						}
					}
					t.Errorf("%s is not named within %s: %+v", c.want, c.within, s.Report())
				})
			})
		})
	}
}

// tray is a cache that shows what it was given last.
type tray struct {
	none
	kept shoot.Statement
}

func (c *tray) Save(s shoot.Statement) error {
	c.kept = s
	return nil
}

// What a list adds is enforced at once, so it is kept at once too, although no watch has stood since the last failure.
func TestWhatAListAddsIsKeptWhileWatchesFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		s := &script{watch: func(context.Context, url.Values) (io.ReadCloser, error) { return nil, errors.New("reset") }}
		s.list = func(ctx context.Context) (io.ReadCloser, error) {
			lists++
			status := []string{"", "10.3.0.0/16"}[min(lists-1, 1)]
			return answer(listOf(clusterJSON("u1", lists, "10.1.0.0/16", status)))(ctx)
		}
		var c tray
		source := newSource(Options{Ref: one, Cache: &c, Log: zap.NewNop(), Connect: func() (API, error) { return s, nil }}, "shoot", decisive)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		source.Run(ctx, func() {})
		if r := source.Report(); len(r.Networks) != 2 || r.Away == nil {
			t.Fatalf("the report says %+v", r)
		}
		if got := fmt.Sprint(c.kept.Reading.Networks); got != "[10.1.0.0/16 10.3.0.0/16]" {
			t.Errorf("the cache holds %s", got)
		}
	})
}

// The server's wish counts, but not for hours.
func TestRetryAfter(t *testing.T) {
	for seconds, want := range map[int]time.Duration{0: 250 * time.Millisecond, 20: 20 * time.Second, 7200: 30 * time.Second} {
		var p pace
		err := apierrors.NewTooManyRequests("busy", seconds)
		if got := p.failed(retryAfter(err), maxPause); got < want || got > max(want, 500*time.Millisecond) {
			t.Errorf("Retry-After: %d makes a pause of %s", seconds, got)
		}
	}
}

func TestAnInfrastructureThatMayNotBeReadIsSeldomAskedFor(t *testing.T) {
	b := belief{role: additional}
	if got := b.longest(&named{Forbidden, errors.New("no")}); got != refusedPause {
		t.Errorf("forbidden: %s", got)
	}
	if got := b.longest(&named{TimedOut, errors.New("silence")}); got != maxPause {
		t.Errorf("silence: %s", got)
	}
}

func TestCauseOf(t *testing.T) {
	resource := schema.GroupResource{Group: "extensions.gardener.cloud", Resource: "clusters"}
	for want, err := range map[Cause]error{
		Unauthorized:   apierrors.NewUnauthorized("no"),
		Forbidden:      apierrors.NewForbidden(resource, "x", errors.New("no")),
		NotServed:      apierrors.NewGenericServerResponse(404, "get", resource, "", "404 page not found", 0, true),
		Expired:        apierrors.NewResourceExpired("too old"),
		Busy:           apierrors.NewTooManyRequests("busy", 1),
		ServerFailed:   apierrors.NewInternalError(errors.New("etcd")),
		TimedOut:       context.DeadlineExceeded,
		ConnectionLost: &url.Error{Op: "Get", URL: "https://x", Err: io.EOF},
	} {
		if got := causeOf(fmt.Errorf("around it: %w", err)); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
		if said := explain(one, err).Error(); !strings.HasPrefix(said, string(want)+" of cluster/shoot--dev--one: ") || strings.Contains(said, "https://x") {
			t.Errorf("%s", said)
		}
	}
}
