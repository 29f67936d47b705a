package apiserver

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The largest objects, all at once, made of the smallest parts: decoded they take the most. The memory of the manifests must do.
func TestMemory(t *testing.T) {
	const callers, each = 16, 2
	i := installWebhook(t)
	containers, _, err := unstructured.NestedSlice(find(t, i.objects, "Deployment", webhookName).Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	container := containers[0].(map[string]any)
	limit, _, _ := unstructured.NestedString(container, "resources", "limits", "memory")
	for _, v := range container["env"].([]any) {
		if variable := v.(map[string]any); variable["name"] == "GOMEMLIMIT" {
			t.Setenv("GOMEMLIMIT", variable["value"].(string))
		}
	}
	i.run("10.9.0.11")
	i.awaitsReady(1)
	body := largest(t)
	client := shared.space.HTTP()
	client.Timeout = 0
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // trust is not the point here
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				response, err := client.Post("https://10.9.0.11:9443/mutate", "application/json", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			}
		})
	}
	all.Wait()
	i.mu.Lock()
	peak := peakKiB(t, i.replicas["10.9.0.11"].Pid())
	i.mu.Unlock()
	quantity := resource.MustParse(limit)
	t.Logf("%d reviews of %.1f MiB, %d at a time: at most %d MiB resident, of %s", callers*each, float64(len(body))/(1<<20), callers, peak/1024, limit)
	if int64(peak)*1024 > quantity.Value() {
		t.Errorf("%d KiB do not fit into %s", peak, limit)
	}
	if changed := i.metric("10.9.0.11", `routefence_webhook_reviews_total{outcome="changed"}`); changed != callers*each {
		t.Errorf("%v of %d reviews were answered with a change", changed, callers*each)
	}
}

// largest is the review of an object just below what etcd takes, with as many items as there can be.
func largest(t *testing.T) string {
	t.Helper()
	u := workload("kube-apiserver-ha", "shoot--large--one")
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	var env []any
	for n := 0; n < 85_000; n++ {
		env = append(env, map[string]any{"name": fmt.Sprintf("E%d", n)})
	}
	containers[0].(map[string]any)["env"] = env
	if err := unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": map[string]any{
		"uid": "u", "kind": map[string]any{"group": "apps", "version": "v1", "kind": "Deployment"}, "operation": "CREATE",
		"namespace": u.GetNamespace(), "name": u.GetName(), "object": u.Object}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// peakKiB is the most memory that a process has had.
func peakKiB(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(data), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(line, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}
