package apiserver

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/authority"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"go.uber.org/zap"
)

// The tests in this file change the API server itself. None of them runs in parallel, so they come before those that do.

func TestKindNotServedThenServedThenRemoved(t *testing.T) {
	const namespace = "garden-kinds"
	r := shared.reader(t, t.TempDir(), namespace)
	remove := func() {
		if err := shared.objects.Resource(crds).Delete(context.Background(), "shoots.core.gardener.cloud", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	w := watch(t, "shoot/"+namespace+"/"+shootName, r.file("kubeconfig"), "")
	took := w.says(named, "known=false", "NotServed of shoot/"+namespace+"/"+shootName, "the API server does not serve this kind")
	t.Logf("404 is named after %s", took.Round(time.Millisecond))
	shared.install(shootCRD)
	shared.put(shoots, shootWith(namespace, shootName, networks{spec: "10.1.0.0/16"}))
	t.Logf("known %s after it is served", w.names(recovered, "10.1.0.0/16").Round(time.Millisecond))
	w.healthy(soon)

	remove()
	took = w.says(named, "known=true", "away=NotServed of shoot/", "stays fenced")
	t.Logf("its removal is named after %s", took.Round(time.Millisecond))
	w.holds("10.1.0.0/16")
	shared.install(shootCRD)
	shared.put(shoots, shootWith(namespace, shootName, networks{spec: "10.2.0.0/16"}))
	w.names(recovered, "10.2.0.0/16")
	w.healthy(soon)
}

func TestServerAndItsAuthorityReplaced(t *testing.T) {
	const name = "shoot--dev--ca"
	r, w := established(t, name, "")
	shared.stop()
	took := w.says(named, "away=", "of cluster/"+name, "stays fenced")
	t.Logf("the end of the server is named after %s", took.Round(time.Millisecond))
	w.holds("10.1.0.0/16")

	// The server comes back with a certificate of an authority that the source does not know yet.
	trusted := filepath.Join(shared.dir, "ca.crt")
	old, err := os.ReadFile(trusted)
	if err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(t.TempDir(), "ca.crt")
	writeFile(t, mine, old)
	config, err := clientcmd.LoadFromFile(r.file("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.Clusters["seed"].CertificateAuthority = mine
	if err := clientcmd.WriteToFile(*config, r.file("kubeconfig")); err != nil {
		t.Fatal(err)
	}
	next := authority.New(t, shared.dir, "next")
	next.Issue(t, "server", pkix.Name{CommonName: "kube-apiserver"}, "127.0.0.1")
	both, err := os.ReadFile(filepath.Join(shared.dir, "next.crt"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, trusted, append(old, both...)) // for the test's own clients and for client certificates
	shared.trust()
	shared.start()
	took = w.says(named, "away=Untrusted of cluster/"+name, "x509", "the configured CA did not sign")
	t.Logf("the unknown authority is named after %s", took.Round(time.Millisecond))
	writeFile(t, mine, append(old, both...))
	t.Logf("healthy %s after the new CA file", w.healthy(recovered).Round(time.Millisecond))
	w.follows(name, "10.2.0.0/16", soon)
}

// adminKubeconfig is for loops by the hundred, whose rights are not the point.
func (s *seed) adminKubeconfig(t *testing.T) string {
	t.Helper()
	c := api.NewConfig()
	c.Clusters["seed"] = &api.Cluster{Server: s.admin.Host, CertificateAuthority: s.admin.CAFile}
	c.AuthInfos["admin"] = &api.AuthInfo{ClientCertificate: s.admin.CertFile, ClientKey: s.admin.KeyFile}
	c.Contexts["seed"] = &api.Context{Cluster: "seed", AuthInfo: "admin"}
	c.CurrentContext = "seed"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// crowd runs many sources, each of a Shoot of its own and with a connection of its own.
func crowd(t *testing.T, kubeconfig string, many int) []*watcher {
	t.Helper()
	const namespace = "garden-crowd"
	shared.reader(t, t.TempDir(), namespace) // for its namespace
	for i := range many {
		shared.put(shoots, shootWith(namespace, fmt.Sprintf("s%03d", i), networks{spec: "10.1.0.0/16"}))
	}
	var out []*watcher
	for i := range many {
		out = append(out, watchWith(t, fmt.Sprintf("shoot/%s/s%03d", namespace, i), kubeconfig, "", zap.NewNop()))
	}
	return out
}

func allHealthy(crowd []*watcher, within time.Duration) time.Duration {
	begin := time.Now()
	for _, w := range crowd {
		w.healthy(max(time.Second, within-time.Since(begin)))
	}
	return time.Since(begin)
}

func TestTwoHundredAgents(t *testing.T) {
	const many, window = 200, 66 * time.Second
	const resource = `resource="shoots"`
	kubeconfig := shared.adminKubeconfig(t)
	before, rss := heap(), residentKiB(t, shared.server.Pid())
	agents := crowd(t, kubeconfig, many)
	allHealthy(agents, time.Minute)
	time.Sleep(3 * time.Second)
	if got := shared.metric("apiserver_longrunning_requests", `verb="WATCH"`, resource); got != many {
		t.Errorf("%v watches for %d agents", got, many)
	}
	t.Logf("memory: %d KiB of heap and stacks an agent; API server %d KiB resident an agent",
		(heap()-before)/1024/many, (residentKiB(t, shared.server.Pid())-rss)/many)
	lists := shared.lists(resource)
	watches := shared.metric("apiserver_request_total", `verb="WATCH"`, resource)
	time.Sleep(window)
	listed := shared.lists(resource) - lists
	watched := shared.metric("apiserver_request_total", `verb="WATCH"`, resource) - watches
	t.Logf("idle, %d agents for %s: %.1f watches a second, %v lists", many, window, watched/window.Seconds(), listed)
	if listed > 0 || watched > 4*many {
		t.Errorf("too much for nothing: %v lists, %v watches", listed, watched)
	}

	shared.stop()
	time.Sleep(10 * time.Second)
	shared.start()
	took := allHealthy(agents, 90*time.Second)
	listed = shared.lists(resource)
	t.Logf("after 10 s without the API server: all %d agents are well %s after it is ready, with %v lists", many, took.Round(time.Millisecond), listed)
	if listed < many || listed > 1.5*many {
		t.Errorf("a storm, or not one each: %v lists by %d agents after the restart", listed, many)
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}

// residentKiB is the resident memory of a process.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(data), "VmRSS:")
	var kib int
	if _, err := fmt.Sscan(line, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
