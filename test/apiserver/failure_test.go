package apiserver

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// named is how soon the state must name a cause.
	named = 30 * time.Second
	// noticed is how soon a dead watch must be noticed.
	noticed = 60 * time.Second
	// recovered is how soon all must be well again: the longest pause, and one answer.
	recovered = 45 * time.Second
)

// established runs a source for a Cluster that has been read once, through an address.
func established(t *testing.T, name, address string) (*reader, *watcher) {
	t.Helper()
	r := shared.reader(t, t.TempDir(), name)
	if address != "" {
		r.kubeconfig(address)
	}
	shared.putCluster(name, networks{spec: "10.1.0.0/16"})
	w := watch(t, "cluster/"+name, r.file("kubeconfig"), "")
	w.names(soon, "10.1.0.0/16")
	w.healthy(soon)
	time.Sleep(3 * time.Second) // the list has answered; the watch stands for sure only after a while
	return r, w
}

// follows asserts that a change is seen without anything being restarted.
func (w *watcher) follows(name, network string, within time.Duration) {
	w.t.Helper()
	shared.putCluster(name, networks{spec: network})
	took := w.names(within, network)
	w.healthy(soon)
	w.t.Logf("a change after it is seen after %s", took.Round(time.Millisecond))
}

func TestRightsTakenAway(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--rights"
	r, w := established(t, name, "")
	r.revoke()
	took := w.says(named, "away=Forbidden of cluster/"+name, "clusters.extensions.gardener.cloud", "cannot", "grant get, list and watch", "stays fenced")
	t.Logf("403 is named after %s", took.Round(time.Millisecond))
	w.holds("10.1.0.0/16")
	r.grant()
	t.Logf("healthy %s after the grant", w.healthy(recovered).Round(time.Millisecond))
	w.follows(name, "10.2.0.0/16", soon)
}

func TestTokenRevokedThenRotated(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--token"
	r, w := established(t, name, "")
	r.revokeToken("first")
	// The API server itself believes in a token for ten seconds after it has seen it.
	took := w.says(named+10*time.Second, "away=Unauthorized of cluster/"+name, "the token or certificate has expired, was revoked", "stays fenced")
	t.Logf("401 is named after %s", took.Round(time.Millisecond))
	w.holds("10.1.0.0/16")
	r.newToken("second")
	t.Logf("healthy %s after the new token", w.healthy(recovered).Round(time.Millisecond))
	w.follows(name, "10.2.0.0/16", soon)
}

// A token that stands in the kubeconfig itself, which client-go would keep for ever.
func TestTokenInTheKubeconfig(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--embedded"
	r := shared.reader(t, t.TempDir(), name)
	r.embedToken()
	shared.putCluster(name, networks{spec: "10.1.0.0/16"})
	w := watch(t, "cluster/"+name, r.file("kubeconfig"), "")
	w.names(soon, "10.1.0.0/16")
	r.revokeToken("first")
	w.says(named+10*time.Second, "away=Unauthorized of cluster/"+name, "stays fenced")
	w.holds("10.1.0.0/16")
	r.newToken("second")
	r.embedToken()
	t.Logf("healthy %s after the new token", w.healthy(recovered).Round(time.Millisecond))
	w.follows(name, "10.2.0.0/16", soon)
}

// As the kubelet does: the new token is there before the old one ends.
func TestTokenRotatedThenRevoked(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--rotation"
	r, w := established(t, name, "")
	r.newToken("second")
	r.revokeToken("first")
	time.Sleep(named)
	w.healthy(soon)
	w.follows(name, "10.2.0.0/16", soon)
}

// The connections of the watch die without a packet. New ones work.
func TestWatchDiesInSilence(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--dead"
	door := newRelay(t, nil, shared.space, "127.0.0.1:"+serverPort)
	_, w := established(t, name, door.address())
	if door.hold() == 0 {
		t.Fatal("no connection to hold")
	}
	begin := time.Now()
	shared.putCluster(name, networks{spec: "10.2.0.0/16"})
	w.says(named, "away=ConnectionLost of cluster/"+name, "10.1.0.0/16")
	w.names(noticed, "10.2.0.0/16")
	t.Logf("the change is seen %s after the connection died", time.Since(begin).Round(time.Millisecond))
	w.healthy(soon)
}

// The proxy before the API server lives and answers pings, but passes nothing on.
func TestWatchSilentBehindAProxy(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--proxy"
	g := shared.gateway(t)
	g.does(func(w http.ResponseWriter, r *http.Request) bool {
		if !watching(r) {
			return false
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	})
	_, w := established(t, name, g.address())
	shared.putCluster(name, networks{spec: "10.2.0.0/16"})
	begin := time.Now()
	w.says(noticed, "away=Silent of cluster/"+name, "should have ended by itself")
	w.names(noticed, "10.2.0.0/16")
	t.Logf("the change is seen after %s", time.Since(begin).Round(time.Millisecond))
	g.does(nil)
	// A watch that was begun before this may still be held back, and counts as healthy until it is given up.
	w.healthy(recovered)
	w.follows(name, "10.3.0.0/16", noticed)
}

func TestListNeverCompletes(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--list"
	g := shared.gateway(t)
	g.does(silence)
	r := shared.reader(t, t.TempDir(), name)
	r.kubeconfig(g.address())
	shared.putCluster(name, networks{spec: "10.1.0.0/16"})
	w := watch(t, "cluster/"+name, r.file("kubeconfig"), "")
	took := w.says(named, "known=false", "TimedOut of cluster/"+name, "no complete answer to the list within 10s")
	t.Logf("named after %s", took.Round(time.Millisecond))
	if n := g.lists.Load(); n > 2 {
		t.Errorf("%d lists in one answer time", n)
	}
	g.does(nil)
	w.names(recovered, "10.1.0.0/16")
	w.healthy(soon)
}

// The real API server answers 410 to a revision that etcd has compacted. That must not become a storm of lists.
func TestHistoryCompacted(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--gone"
	g := shared.gateway(t)
	r, w := established(t, name, g.address())
	_ = r
	g.does(func(_ http.ResponseWriter, r *http.Request) bool {
		if watching(r) {
			query := r.URL.Query()
			query.Set("resourceVersion", "1")
			r.URL.RawQuery = query.Encode()
		}
		return false
	})
	// The watch that stands ends by itself; the next one asks for history that is gone.
	took := w.says(named, "away=Expired of cluster/"+name, "too old resource version", "stays fenced")
	t.Logf("410 is named after %s", took.Round(time.Millisecond))
	w.holds("10.1.0.0/16")
	before := g.lists.Load()
	shared.putCluster(name, networks{spec: "10.2.0.0/16"})
	w.names(named, "10.2.0.0/16") // by list alone
	time.Sleep(20 * time.Second)
	if lists := g.lists.Load() - before; lists > 8 {
		t.Errorf("%d lists within 20 s of 410s", lists)
	} else {
		t.Logf("%d lists while each watch was answered with 410", lists)
	}
	g.does(nil)
	w.healthy(recovered)
	w.follows(name, "10.3.0.0/16", soon)
}

// A restored or lagging API server answers with an older revision.
func TestOlderRevisionAfterNewer(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--older"
	g := shared.gateway(t)
	r := shared.reader(t, t.TempDir(), name)
	r.kubeconfig(g.address())
	shared.putCluster(name, networks{spec: "10.1.0.0/16"})
	old := fetch(t, g, r, "/apis/extensions.gardener.cloud/v1alpha1/clusters?fieldSelector=metadata.name%3D"+name)
	shared.putCluster(name, networks{spec: "10.1.0.0/16", status: []string{"10.1.0.0/16", "10.3.0.0/16"}})
	w := watch(t, "cluster/"+name, r.file("kubeconfig"), "")
	w.names(soon, "10.1.0.0/16", "10.3.0.0/16")
	g.does(func(w http.ResponseWriter, r *http.Request) bool {
		if watching(r) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(old)
		return true
	})
	g.CloseClientConnections()
	w.says(named, "10.3.0.0/16", "came after revision", "only what it adds counts")
	w.holds("10.1.0.0/16", "10.3.0.0/16")
	g.does(nil)
	w.healthy(recovered)
	w.follows(name, "10.2.0.0/16", soon)
}

// fetch asks through the gateway with the reader's token.
func fetch(t *testing.T, g *gateway, r *reader, path string) []byte {
	t.Helper()
	token, err := os.ReadFile(r.file("token"))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(http.MethodGet, "https://"+g.address()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	client := g.Client()
	client.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true // the certificate is the seed's, not httptest's
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text strings.Builder
	if _, err := io.Copy(&text, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%d %v %s", response.StatusCode, err, text.String())
	}
	return []byte(text.String())
}

// Start with an API server that is away: what the cache holds counts at once, unless it cannot be trusted.
func TestStartWithoutTheAPI(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--start"
	door := newRelay(t, nil, shared.space, "127.0.0.1:"+serverPort)
	r := shared.reader(t, t.TempDir(), name)
	r.kubeconfig(door.address())
	shared.putCluster(name, networks{spec: "10.1.0.0/16", status: []string{"10.1.0.0/16", "fd00:1::/48"}})
	dir := t.TempDir()
	first := watch(t, "cluster/"+name, r.file("kubeconfig"), dir)
	first.names(soon, "10.1.0.0/16", "fd00:1::/48")
	first.healthy(soon)
	eventually(t, soon, func() (string, bool) {
		b := first.source.Beside().Report()
		return describe(b), b.Known && len(cached(t, dir)) == 2
	})
	first.stop()
	door.close()

	t.Run("cache present", func(t *testing.T) {
		w := watch(t, "cluster/"+name, r.file("kubeconfig"), dir)
		// At once: not after a first failure.
		w.holds("10.1.0.0/16", "fd00:1::/48")
		w.says(named, "away=Unreachable of cluster/"+name, "networking.gardener.cloud/to-runtime-apiserver=allowed", "stays fenced")
		w.holds("10.1.0.0/16", "fd00:1::/48")
		if b := w.source.Beside().Report(); !b.Known || b.Err != nil {
			t.Errorf("the Infrastructure is in the way: %s", describe(b))
		}
	})
	for what, spoil := range map[string]func(string) string{
		"corrupt":          func(s string) string { return s[:len(s)/2] },
		"of another UID":   func(s string) string { return strings.Replace(s, `"uid":"`, `"uid":"0`, 1) },
		"of another shoot": func(s string) string { return strings.Replace(s, name, "shoot--dev--other", 1) },
		"none":             func(string) string { return "" },
	} {
		t.Run("cache "+what, func(t *testing.T) {
			bad := t.TempDir()
			for _, path := range cached(t, dir) {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if text := spoil(string(data)); text != "" {
					writeFile(t, filepath.Join(bad, filepath.Base(path)), []byte(text))
				}
			}
			w := watch(t, "cluster/"+name, r.file("kubeconfig"), bad)
			want := []string{"[] known=false", "Unreachable of cluster/" + name}
			if what != "none" {
				want = append(want, "ignored: corrupt")
			}
			w.says(named, want...)
		})
	}
}

func cached(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The kubeconfig, and what it names, may come later than the agent.
func TestKubeconfigComesLater(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--later"
	r := shared.reader(t, t.TempDir(), name)
	shared.putCluster(name, networks{spec: "10.1.0.0/16"})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	w := watch(t, "cluster/"+name, path, "")
	w.says(named, "known=false", "Misconfigured of cluster/"+name, "kubeconfig "+path, "no such file")
	data, err := os.ReadFile(r.file("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, data)
	w.names(recovered, "10.1.0.0/16")
}

// The Infrastructure adds what the Cluster does not say yet, if it may be read.
func TestInfrastructureBesideItsCluster(t *testing.T) {
	t.Parallel()
	const name = "shoot--dev--infra"
	r, w := established(t, name, "")
	beside := &watcher{t: t, source: w.source.Beside()}
	beside.says(soon, "known=true err=<nil> away=<nil>", "Forbidden of infrastructure/"+name+"/"+shootName)
	r.grantInfrastructure()
	i := infrastructureWith(name)
	i.Status.NodesCIDR = ptr("10.8.0.0/16")
	shared.put(infrastructures, i)
	beside.names(recovered, "10.8.0.0/16")
	i.Status.NodesCIDR = nil
	i.Status.Networking = &infrastructureNetworking{Nodes: []string{"10.8.0.0/16", "10.9.0.0/16"}}
	shared.put(infrastructures, i)
	beside.names(soon, "10.8.0.0/15")
	beside.says(soon, "known=true")
	shared.remove(infrastructures, name, shootName)
	beside.says(soon, "10.8.0.0/15", "known=true", "away=NotFound of infrastructure/"+name+"/"+shootName, "stays fenced")
}
