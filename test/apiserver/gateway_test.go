package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// gateway stands between a source and the real API server as a proxy that ends TLS, such as Istio's, and misbehaves on demand. It
// speaks HTTP/2 and answers pings whatever it does otherwise.
type gateway struct {
	*httptest.Server
	// misbehave sees each request first. It returns true if it has dealt with it.
	misbehave atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	// lists counts those of Clusters.
	lists atomic.Int64
}

func (s *seed) gateway(t *testing.T) *gateway {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(s.dir, "server.crt"), filepath.Join(s.dir, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(s.dir, "ca.crt"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("CA: %v", err)
	}
	g := &gateway{}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: s.door.address()}) },
		FlushInterval: -1,
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !watching(r) && strings.HasSuffix(r.URL.Path, "/clusters") {
			g.lists.Add(1)
		}
		if f := g.misbehave.Load(); f == nil || !(*f)(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	g.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	g.EnableHTTP2 = true
	g.StartTLS()
	t.Cleanup(func() {
		g.CloseClientConnections()
		g.Close()
	})
	return g
}

func watching(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// does sets how the gateway misbehaves, nil for not at all.
func (g *gateway) does(f func(w http.ResponseWriter, r *http.Request) bool) {
	if f == nil {
		g.misbehave.Store(nil)
		return
	}
	g.misbehave.Store(&f)
}

func (g *gateway) address() string { return g.Listener.Addr().String() }

// silence begins an answer and never goes on with it.
func silence(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"kind":"ClusterList",`)) // the peer may be gone, which is no matter
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
	return true
}
