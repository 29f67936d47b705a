// Package health serves the agent's state over HTTP: probes, the state document and metrics, all read-only.
package health

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/metrics"
)

// States yields the latest state.
type States interface {
	State() *agent.State
}

// maxScrapes is how many scrapes may run at a time. More get a 503 at once: each holds all it has gathered.
const maxScrapes = 4

// Handler answers /healthz, /startupz, /readyz, /state and /metrics, for GET and HEAD.
func Handler(s States, m *Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", probe(http.StatusInternalServerError, func() []agent.Check { return s.State().Live(time.Now()) }))
	mux.HandleFunc("/startupz", probe(http.StatusServiceUnavailable, func() []agent.Check { return s.State().Started() }))
	mux.HandleFunc("/readyz", probe(http.StatusServiceUnavailable, func() []agent.Check { return s.State().Ready(time.Now()) }))
	mux.HandleFunc("/state", func(w http.ResponseWriter, _ *http.Request) { writeState(w, s.State().At(time.Now())) })
	mux.Handle("/metrics", metrics.Handler(maxScrapes, m.collect))
	return readOnly(mux)
}

func readOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed: this server is read-only", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// probe answers "ok" or the failed checks, and with ?verbose every check, in the form of Kubernetes components.
func probe(failure int, checks func() []agent.Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var all, failed strings.Builder
		for _, c := range checks() {
			if c.Err == nil {
				fmt.Fprintf(&all, "[+]%s ok\n", c.Name)
				continue
			}
			line := fmt.Sprintf("[-]%s failed: %s\n", c.Name, strings.ReplaceAll(c.Err.Error(), "\n", "; "))
			all.WriteString(line)
			failed.WriteString(line)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if failed.Len() > 0 {
			w.WriteHeader(failure)
		}
		switch {
		case r.URL.Query().Has("verbose"):
			fmt.Fprint(w, all.String())
		case failed.Len() > 0:
			fmt.Fprint(w, failed.String())
		default:
			fmt.Fprint(w, "ok")
		}
	}
}

func writeState(w http.ResponseWriter, d agent.Document) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(d) // the client has gone away: there is nobody to tell
}
