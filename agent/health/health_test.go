package health

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/policy"
	"go.uber.org/zap"
)

// countersFunc are counters made of a function.
type countersFunc func() (map[policy.Family]uint64, error)

func (f countersFunc) Rejected() (map[policy.Family]uint64, error) { return f() }

func handler(c Counters) http.Handler {
	m := NewMetrics(map[string]string{"version": "test"}, c)
	a := agent.New(agent.Config{}, agent.Kernel{}, nil, zap.NewNop())
	m.Watch(a)
	return Handler(a, m)
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// TestScrapesAreBounded: whoever scrapes too much is told so at once, instead of waiting for what the others wait for.
func TestScrapesAreBounded(t *testing.T) {
	release := make(chan struct{})
	h := handler(countersFunc(func() (map[policy.Family]uint64, error) { <-release; return nil, nil }))
	const extra = 3
	codes := make(chan int, maxScrapes+extra)
	for range maxScrapes + extra {
		go func() { codes <- get(h, "/metrics").Code }()
	}
	for range extra {
		select {
		case code := <-codes:
			if code != http.StatusServiceUnavailable {
				t.Errorf("one scrape too many: %d", code)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("one scrape too many waits")
		}
	}
	close(release)
	for range maxScrapes {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a scrape that waited: %d", code)
		}
	}
}

// TestUnreadCountersKeepTheirValue: counters that cannot be read for a while must not count again what was counted before.
func TestUnreadCountersKeepTheirValue(t *testing.T) {
	var now map[policy.Family]uint64
	h := handler(countersFunc(func() (map[policy.Family]uint64, error) { return now, nil }))
	for _, now = range []map[policy.Family]uint64{{policy.IPv4: 5}, {}, {policy.IPv4: 7}} {
		get(h, "/metrics")
	}
	body := get(h, "/metrics").Body.String()
	const want = `routefence_rejected_packets_total{family="ipv4"}`
	if _, rest, _ := strings.Cut(body, want); !strings.HasPrefix(rest, " 7\n") {
		t.Errorf("7 packets were rejected, not%.3s", rest)
	}
}
