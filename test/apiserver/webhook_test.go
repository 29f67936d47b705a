package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	autoscaling "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	corpus "github.com/routefence/routefence/test/gardener"
)

// workload is one of the corpus, in a namespace.
func workload(name, namespace string) *unstructured.Unstructured {
	u := fromTree(corpus.Get(name).Tree())
	u.SetNamespace(namespace)
	return u
}

// fromTree goes through JSON, so that numbers are those that a client has.
func fromTree(tree map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	text, err := json.Marshal(tree)
	if err == nil {
		err = u.UnmarshalJSON(text)
	}
	if err != nil {
		panic(err)
	}
	return u
}

func of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	return shared.client(plural, u.GetNamespace())
}

func create(u *unstructured.Unstructured, options ...string) (*unstructured.Unstructured, error) {
	return of(u).Create(context.Background(), u, metav1.CreateOptions{DryRun: options})
}

// reconcile does what gardenlet does: it sets labels and spec of the live object to its own, without the fence, and sends the difference.
func reconcile(u *unstructured.Unstructured, options ...string) (*unstructured.Unstructured, error) {
	live, err := of(u).Get(context.Background(), u.GetName(), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	next := live.DeepCopy()
	next.SetLabels(u.GetLabels())
	next.Object["spec"] = u.Object["spec"]
	before, first := json.Marshal(live)
	after, second := json.Marshal(next)
	if first != nil || second != nil {
		return nil, fmt.Errorf("%w %w", first, second)
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, err
	}
	return of(u).Patch(context.Background(), u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{DryRun: options})
}

// spec is what decides whether pods roll, byte for byte.
func spec(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(u.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func firstContainer(t *testing.T, u *unstructured.Unstructured) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "initContainers")
	if err != nil || len(containers) == 0 {
		return map[string]any{}
	}
	return containers[0].(map[string]any)
}

func fenced(t *testing.T, u *unstructured.Unstructured) bool {
	t.Helper()
	c := firstContainer(t, u)
	return c["name"] == "routefence" && c["image"] == fenceImage && c["restartPolicy"] == "Always"
}

// gardenlet sends its objects without the fence each time. What is stored must be the same, or every control plane would roll.
func TestReconciledTenTimes(t *testing.T) {
	installWebhook(t).start()
	for i, o := range corpus.Objects() {
		if !o.Fenced {
			continue
		}
		t.Run(o.Name, func(t *testing.T) {
			namespace := fmt.Sprintf("shoot--stable--%d", i)
			shootNamespace(t, namespace, &networks{spec: "10.250.0.0/16"})
			u := workload(o.Name, namespace)
			first, err := create(u)
			if err != nil {
				t.Fatal(err)
			}
			if !fenced(t, first) {
				t.Fatalf("not fenced: %s", spec(t, first))
			}
			for range 10 {
				next, err := reconcile(u)
				if err != nil {
					t.Fatal(err)
				}
				if spec(t, next) != spec(t, first) || next.GetGeneration() != first.GetGeneration() {
					t.Fatalf("generation %d, was %d:\n%s\nwas\n%s", next.GetGeneration(), first.GetGeneration(), spec(t, next), spec(t, first))
				}
			}
			containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
			containers[0].(map[string]any)["image"] = "registry.k8s.io/other:v2"
			if err := unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers"); err != nil {
				t.Fatal(err)
			}
			changed, err := reconcile(u)
			if err != nil || changed.GetGeneration() != first.GetGeneration()+1 || !fenced(t, changed) {
				t.Errorf("after a change: generation %d, was %d (%v)", changed.GetGeneration(), first.GetGeneration(), err)
			}
		})
	}
}

// With the webhook down: what it concerns is refused, and nothing else is held up, least of all its own return (FR-43).
func TestWebhookDown(t *testing.T) {
	const namespace = "shoot--closed--one"
	i := installWebhook(t, "--drain=1s").start()
	shootNamespace(t, namespace, &networks{spec: "10.250.0.0/16"})
	u := workload("kube-apiserver-ha", namespace)
	stored, err := create(u)
	if err != nil {
		t.Fatal(err)
	}
	i.end("10.9.0.11")
	i.end("10.9.0.12")
	i.awaitsReady(0)

	refused := func(what string, err error) {
		t.Helper()
		if !errors.IsInternalError(err) || !strings.Contains(err.Error(), "workloads.routefence.io") {
			t.Errorf("%s is not refused for want of the webhook: %v", what, err)
		}
	}
	// Some of the corpus is refused by others, such as Pod Security in the webhook's own namespace.
	allowed := func(what string, err error) {
		t.Helper()
		if err != nil && strings.Contains(err.Error(), "routefence.io") {
			t.Errorf("%s waits for the webhook: %v", what, err)
		}
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	u.SetAnnotations(map[string]string{"a": "b"})
	_, err = reconcile(withReplicas(u, 7))
	refused("an update", err)
	_, err = shared.typed.AppsV1().Deployments(namespace).UpdateScale(context.Background(), u.GetName(),
		&autoscaling.Scale{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: namespace}, Spec: autoscaling.ScaleSpec{Replicas: 3}}, metav1.UpdateOptions{})
	must("scale", err)
	live, err := of(u).Get(context.Background(), u.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	live.Object["status"] = map[string]any{"observedGeneration": stored.GetGeneration()}
	_, err = of(u).UpdateStatus(context.Background(), live, metav1.UpdateOptions{})
	must("status", err)
	must("delete", of(u).Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}))
	_, err = create(u)
	refused("a create", err)

	t.Run("corpus", func(t *testing.T) {
		// A seed that labels too much must not lock itself out: these are left alone by name as well.
		shootRole(t, own, "kube-system")
		matching(t, namespace, refused, allowed)
	})
	t.Run("break glass", func(t *testing.T) {
		patch := []byte(`{"metadata":{"labels":{"routefence.io/inject":"false"}}}`)
		if _, err := shared.typed.CoreV1().Namespaces().Patch(context.Background(), namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, soon, func() (string, bool) {
			_, err := create(u, metav1.DryRunAll)
			return fmt.Sprint(err), err == nil
		})
	})

	i.run("10.9.0.11")
	i.awaitsReady(1)
	back := workload("vpn-seed-server-ha", "shoot--closed--two")
	shootNamespace(t, back.GetNamespace(), nil)
	made, err := create(back)
	if err != nil || !fenced(t, made) {
		t.Errorf("after its return: %v", err)
	}
}

func withReplicas(u *unstructured.Unstructured, n int64) *unstructured.Unstructured {
	u = u.DeepCopy()
	_ = unstructured.SetNestedField(u.Object, n, "spec", "replicas") // spec is an object
	return u
}

// shootRole labels namespaces as those of control planes until the test ends.
func shootRole(t *testing.T, namespaces ...string) {
	t.Helper()
	for _, name := range namespaces {
		label := func(value string) error {
			patch := []byte(`{"metadata":{"labels":{"gardener.cloud/role":` + value + `}}}`)
			_, err := shared.typed.CoreV1().Namespaces().Patch(context.Background(), name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}
		if err := label(`"shoot"`); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := label("null"); err != nil {
				t.Error(err)
			}
		})
	}
}

// matching asks the API server itself which objects it would not admit without the webhook.
func matching(t *testing.T, shootNamespace string, refused, allowed func(string, error)) {
	for _, namespace := range []string{shootNamespace, own, "kube-system", "default"} {
		for _, o := range corpus.Objects() {
			u := workload(o.Name, namespace)
			_, err := create(u, metav1.DryRunAll)
			what := fmt.Sprintf("%s %s in %s", u.GetKind(), o.Name, namespace)
			concerned := o.Fenced || slices.Contains([]string{"kube-apiserver-host-network", "kube-apiserver-workerless", "kube-apiserver-self-hosted",
				"virtual-garden-kube-apiserver"}, o.Name)
			// What runs by itself without VPN looks the same from outside; it is asked about and left alone.
			if concerned && namespace == shootNamespace && u.GetKind() != "Pod" {
				refused(what, err)
			} else {
				allowed(what, err)
			}
		}
		// Gardener's own API server has the role, too.
		u := workload("kube-controller-manager", namespace)
		u.SetName("gardener-apiserver")
		u.SetLabels(map[string]string{"app": "gardener", "role": "apiserver"})
		_, err := create(u, metav1.DryRunAll)
		allowed("gardener-apiserver in "+namespace, err)
		for name, labels := range map[string]map[string]any{
			"calico-node": {"k8s-app": "calico-node"}, "kube-apiserver": {"app": "kubernetes", "role": "apiserver"}, "webhook": {"app": webhookName}} {
			_, err := create(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
				"metadata": map[string]any{"name": name, "namespace": namespace, "labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}}, metav1.DryRunAll)
			allowed("Pod "+name+" in "+namespace, err)
		}
	}
}

// A non-HA kube-apiserver does not name the node networks itself: the Cluster has to.
func TestNodeNetworksOfTheCluster(t *testing.T) {
	i := installWebhook(t).start()
	const named, missing, empty = "shoot--cluster--named", "shoot--cluster--missing", "shoot--cluster--empty"
	shootNamespace(t, named, &networks{spec: "10.250.0.0/16", status: []string{"10.250.0.0/16", "10.180.0.0/16"}})
	shootNamespace(t, missing, nil)
	shootNamespace(t, empty, &networks{})

	made, err := create(workload("kube-apiserver", named))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := words(fmt.Sprint(firstContainer(t, made)), "10.180.0.0/16", "10.250.0.0/16"); !ok {
		t.Errorf("the container does not know the networks: %v", firstContainer(t, made))
	}
	_, err = create(workload("kube-apiserver", missing))
	if !errors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "could not be read") {
		t.Errorf("without a Cluster: %v", err)
	}
	// What names them itself waits for nothing.
	if made, err = create(workload("vpn-seed-server", missing)); err != nil || !fenced(t, made) {
		t.Errorf("vpn-seed-server without a Cluster: %v", err)
	}
	heard := &hearing{}
	config := rest.CopyConfig(shared.admin)
	config.WarningHandler, config.WarningHandlerWithContext = heard, nil
	u := workload("kube-apiserver", empty)
	plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	made, err = dynamic.NewForConfigOrDie(config).Resource(plural).Namespace(empty).Create(context.Background(), u, metav1.CreateOptions{})
	if err != nil || fenced(t, made) {
		t.Errorf("with a Cluster that names nothing: %v", err)
	}
	if text, ok := words(heard.all(), "not fenced", "spec.networking.nodes"); !ok {
		t.Error(text)
	}
	clash := workload("kube-apiserver-ha", named)
	clash.SetName("kube-apiserver-clash")
	containers, _, _ := unstructured.NestedSlice(clash.Object, "spec", "template", "spec", "containers")
	containers = append(containers, map[string]any{"name": "routefence", "image": "mine"})
	if err := unstructured.SetNestedSlice(clash.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	if _, err = create(clash); !errors.IsForbidden(err) || !strings.Contains(err.Error(), "was not made by it") {
		t.Errorf("a container of ours that is not ours: %v", err)
	}
	sum := func(outcome string) float64 {
		sample := `routefence_webhook_reviews_total{outcome="` + outcome + `"}`
		return i.metric("10.9.0.11", sample) + i.metric("10.9.0.12", sample)
	}
	if sum("changed") < 2 || sum("refused") != 1 || sum("unavailable") != 1 {
		t.Errorf("metrics: changed %v, refused %v, unavailable %v", sum("changed"), sum("refused"), sum("unavailable"))
	}
}

// Without --image it injects the image that its own pod runs: one made of the manifests, which Pod Security takes in its namespace.
func TestImageOfTheOwnPod(t *testing.T) {
	const namespace = "shoot--image--one"
	i := installWebhook(t)
	i.image = "--image="
	shootNamespace(t, namespace, nil)
	template, _, err := unstructured.NestedMap(find(t, i.objects, "Deployment", webhookName).Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName(webhookName + "-11")
	pod.SetNamespace(own)
	i.run("10.9.0.11")
	eventually(t, soon, func() (string, bool) {
		said := i.replicas["10.9.0.11"].Output()
		return said, strings.Contains(said, "image of the own pod is not known yet")
	})
	_, alive := i.get("10.9.0.11", "/healthz")
	if _, ready := i.get("10.9.0.11", "/readyz"); alive != 200 || ready != 503 {
		t.Errorf("before the image is known: /healthz %d, /readyz %d", alive, ready)
	}
	if _, err := create(pod); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = of(pod).Delete(context.Background(), pod.GetName(), *metav1.NewDeleteOptions(0)) }()
	i.awaitsReady(1)
	made, err := create(workload("vpn-seed-server", namespace))
	if err != nil || !fenced(t, made) {
		t.Errorf("not fenced with %s: %v", fenceImage, err)
	}
}

// hearing collects admission warnings.
type hearing struct {
	mu   sync.Mutex
	said []string
}

func (h *hearing) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, text)
}

func (h *hearing) all() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.said, "\n")
}

// flood sends dry-run updates one after the other from several clients until it is stopped, and returns how many went wrong.
type flood struct {
	mu       sync.Mutex
	sent     int
	failures []string
	running  sync.WaitGroup
	stop     chan struct{}
}

func startFlood(u *unstructured.Unstructured, clients int, pause time.Duration) *flood {
	f := &flood{stop: make(chan struct{})}
	for range clients {
		f.running.Go(func() {
			for {
				select {
				case <-f.stop:
					return
				case <-time.After(pause):
				}
				_, err := create(u, metav1.DryRunAll)
				f.mu.Lock()
				f.sent++
				if err != nil {
					f.failures = append(f.failures, fmt.Sprintf("%s request %d: %v", time.Now().Format("04:05.000"), f.sent, err))
				}
				f.mu.Unlock()
			}
		})
	}
	return f
}

func (f *flood) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent
}

func (f *flood) end(t *testing.T) {
	t.Helper()
	close(f.stop)
	f.running.Wait()
	if len(f.failures) > 0 {
		t.Errorf("%d of %d requests failed: %s", len(f.failures), f.sent, strings.Join(f.failures[:min(3, len(f.failures))], "\n"))
	}
	t.Logf("%d requests, %d failed", f.sent, len(f.failures))
}
