package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/authority"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// shortLived are lifetimes that a test can wait for: serving certificates change every 3 seconds, authorities every 6.
var shortLived = []string{"--ca-lifetime=12s", "--serving-lifetime=6s", "--bundle-settle=1s", "--drain=2s"}

// Certificates, authorities and replicas come and go, and nobody who creates a control plane notices.
func TestRotationUnderLoad(t *testing.T) {
	const namespace = "shoot--rotation--one"
	i := installWebhook(t, shortLived...).start()
	shootNamespace(t, namespace, &networks{spec: "10.250.0.0/16"})
	f := startFlood(workload("kube-apiserver-ha", namespace), 4, 40*time.Millisecond)
	bundles := map[string]int{}
	deadline := time.Now().Add(15 * time.Second)
	restarts, next := 0, time.Now().Add(3*time.Second)
	for time.Now().Before(deadline) || f.count() < 1000 || restarts < 2 {
		bundles[i.bundle()]++
		// Again and again: what a new process serves with depends on the moment of an authority's life.
		if now := time.Now(); now.After(next) && (restarts < 2 || now.Before(deadline.Add(-3*time.Second))) {
			i.end("10.9.0.11")
			i.run("10.9.0.11")
			restarts, next = restarts+1, time.Now().Add(time.Second)
		}
		time.Sleep(50 * time.Millisecond)
	}
	f.end(t)
	most := 0
	for b := range bundles {
		most = max(most, authoritiesIn(b))
	}
	issued := i.metric("10.9.0.12", `routefence_webhook_certificates_made_total{certificate="serving"}`)
	t.Logf("%d bundles, at most %d authorities in one, %v serving certificates of the replica that stayed, %d restarts of the other",
		len(bundles), most, issued, restarts)
	if len(bundles) < 3 || most < 2 || issued < 4 {
		t.Error("nothing was rotated")
	}
	if left := i.metric("10.9.0.12", `routefence_webhook_certificate_expiry_seconds{certificate="serving"}`); left <= 0 || left > 6 {
		t.Errorf("serving certificate with %v seconds left", left)
	}
}

// Whoever applies the original manifest again, empties the Secret or puts in rubbish: both come back without a hand (FR-44).
func TestWipedAndRepaired(t *testing.T) {
	const namespace = "shoot--wiped--one"
	i := installWebhook(t).start()
	shootNamespace(t, namespace, &networks{spec: "10.250.0.0/16"})
	good := i.bundle()
	if authoritiesIn(good) != 1 {
		t.Fatalf("bundle %s", good)
	}
	configurations := shared.typed.AdmissionregistrationV1().MutatingWebhookConfigurations()
	bundleIs := func(value string) func() error {
		return func() error {
			patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":%s}]`, value)
			_, err := configurations.Patch(context.Background(), webhookName, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
	}
	original := find(t, i.objects, "MutatingWebhookConfiguration", webhookName)
	for name, wipe := range map[string]func() error{
		"removed": bundleIs("null"),
		"replaced by the original": func() error {
			u := original.DeepCopy()
			live, err := of(u).Get(context.Background(), webhookName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			u.SetResourceVersion(live.GetResourceVersion())
			_, err = of(u).Update(context.Background(), u, metav1.UpdateOptions{})
			return err
		},
		"deleted and applied": func() error {
			if err := configurations.Delete(context.Background(), webhookName, metav1.DeleteOptions{}); err != nil {
				return err
			}
			shared.apply(original)
			return nil
		},
		"another authority": func() error {
			dir := t.TempDir()
			authority.New(t, dir, "foreign")
			return bundleIs(`"` + encoded(t, filepath.Join(dir, "foreign.crt")) + `"`)()
		},
		"Secret emptied": func() error { i.emptySecret(); return nil },
		"Secret spoilt": func() error {
			_, err := shared.typed.CoreV1().Secrets(own).Patch(context.Background(), webhookSecret, types.MergePatchType,
				[]byte(`{"data":{"ca.crt":"bm9uc2Vuc2U="}}`), metav1.PatchOptions{})
			return err
		},
		"everything applied": func() error { shared.apply(i.objects...); return nil },
	} {
		begin := time.Now()
		if err := wipe(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		eventually(t, soon, func() (string, bool) {
			secret, err := shared.typed.CoreV1().Secrets(own).Get(context.Background(), webhookSecret, metav1.GetOptions{})
			if err != nil {
				return err.Error(), false
			}
			return name + ": " + i.bundle() + string(secret.Data["ca.crt"]), i.bundle() == good && string(secret.Data["ca.crt"]) == good
		})
		t.Logf("%s: as before after %s", name, time.Since(begin).Round(time.Millisecond))
		i.awaitsReady(2)
		u := workload("vpn-seed-server-ha", namespace)
		eventually(t, soon, func() (string, bool) {
			made, err := create(u, metav1.DryRunAll)
			return fmt.Sprint(name, ": ", err), err == nil && fenced(t, made)
		})
	}
}

// An authority that cannot be replaced is told of while there is time, and what is served stays until its end.
func TestExpiryIsToldOf(t *testing.T) {
	i := installWebhook(t, shortLived...).start()
	roles := shared.typed.RbacV1().Roles(own)
	if _, err := roles.Patch(context.Background(), webhookName, types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/rules/0/verbs","value":["get","watch"]}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, 11*time.Second, func() (string, bool) {
		list, err := shared.typed.CoreV1().Events(own).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err.Error(), false
		}
		var all strings.Builder
		for _, e := range list.Items {
			fmt.Fprintf(&all, "%s %s %s: %s\n", e.Type, e.Reason, e.InvolvedObject.Name, e.Message)
		}
		return words(all.String(), "Warning CertificateExpiring routefence-webhook-11", "could not be replaced", "cannot update")
	})
	left := i.metric("10.9.0.11", `routefence_webhook_certificate_expiry_seconds{certificate="authority"}`)
	t.Logf("told %s after the right was taken, with %.1f of 12 seconds left", took.Round(time.Millisecond), left)
	if left > 4 || left < 0 {
		t.Errorf("%.1f of 12 seconds are left", left)
	}
	if text, code := i.get("10.9.0.11", "/readyz"); code != 200 {
		t.Errorf("not ready although it is trusted still: %s", text)
	}
	shared.apply(i.objects...)
	eventually(t, 20*time.Second, func() (string, bool) {
		left := i.metric("10.9.0.11", `routefence_webhook_certificate_expiry_seconds{certificate="authority"}`)
		return fmt.Sprint(left), left > 6
	})
}

// Not before the live configuration trusts it, and Clusters can be read, does a replica say that it is ready.
func TestReadyOnlyWhenTrusted(t *testing.T) {
	i := installWebhook(t)
	shared.dismantle(t)
	i.run("10.9.0.11")
	eventually(t, soon, func() (string, bool) {
		text, code := i.get("10.9.0.11", "/readyz")
		_, said := words(text, "not found")
		return text, code == 503 && said
	})
	if text, code := i.get("10.9.0.11", "/healthz"); code != 200 {
		t.Errorf("not alive: %s", text)
	}
	shared.apply(find(t, i.objects, "MutatingWebhookConfiguration", webhookName))
	eventually(t, soon, func() (string, bool) {
		text, code := i.get("10.9.0.11", "/readyz")
		return text, code == 200
	})
	if trusted := i.metric("10.9.0.11", "routefence_webhook_trusted"); trusted != 1 {
		t.Errorf("routefence_webhook_trusted %v", trusted)
	}
}

// encoded is a file as JSON has it.
func encoded(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(text)
}

// An API server learns of a replica's end late. Until then the replica answers, on new connections too.
func TestLeavingReplicaServesOn(t *testing.T) {
	i := installWebhook(t, "--drain=3s")
	i.run("10.9.0.11")
	i.awaitsReady(1)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(i.bundle()))
	client := shared.space.HTTP() // each request on a connection of its own
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: webhookName + "." + own + ".svc"}
	i.mu.Lock()
	leaving := i.replicas["10.9.0.11"]
	i.mu.Unlock()
	leaving.Signal(syscall.SIGTERM)
	answers := 0
	for begin := time.Now(); time.Since(begin) < 2*time.Second; time.Sleep(20 * time.Millisecond) {
		response, err := client.Post("https://10.9.0.11:9443/mutate", "application/json", strings.NewReader(`{"request":{"uid":"u"}}`))
		if err != nil {
			t.Fatalf("%s after SIGTERM: %v", time.Since(begin), err)
		}
		response.Body.Close()
		answers++
	}
	if _, code := i.get("10.9.0.11", "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("ready although it leaves: %d", code)
	}
	if code, err := leaving.Wait(10 * time.Second); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	t.Logf("%d answers in two seconds after SIGTERM", answers)
}

// With the component for Pods these are fenced, too.
func TestPodsComponent(t *testing.T) {
	const namespace = "shoot--pods--one"
	i := installWebhook(t, "--pods")
	shared.apply(find(t, overlay(t, "webhook", "pods"), "MutatingWebhookConfiguration", webhookName))
	i.start()
	shootNamespace(t, namespace, &networks{spec: "10.250.0.0/16"})
	template, _, err := unstructured.NestedMap(workload("kube-apiserver-ha", namespace).Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	delete(template["spec"].(map[string]any), "priorityClassName") // there is none of that name here
	pod := &unstructured.Unstructured{Object: template}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName("kube-apiserver-0")
	pod.SetNamespace(namespace)
	made, err := create(pod)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := unstructured.NestedSlice(made.Object, "spec", "initContainers")
	if first[0].(map[string]any)["name"] != "routefence" {
		t.Errorf("not fenced: %v", first[0])
	}
	// What is added to a running pod is no business of the webhook's.
	ephemeral := []byte(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"i","targetContainerName":"kube-apiserver"}]}}`)
	pods := shared.typed.CoreV1().Pods(namespace)
	if _, err := pods.Patch(context.Background(), "kube-apiserver-0", types.StrategicMergePatchType, ephemeral, metav1.PatchOptions{}, "ephemeralcontainers"); err != nil {
		t.Errorf("an ephemeral container: %v", err)
	}
}

// While the API server is away the replicas stay what they are, and keep the bundle again once it is back.
func TestAPIServerGoesAndComes(t *testing.T) {
	i := installWebhook(t).start()
	good := i.bundle()
	shared.stop()
	time.Sleep(2 * time.Second)
	for _, address := range []string{"10.9.0.11", "10.9.0.12"} {
		if text, code := i.get(address, "/readyz"); code != http.StatusOK {
			t.Errorf("%s is not ready because the API server is away: %s", address, text)
		}
	}
	shared.start()
	patch := []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
	if _, err := shared.typed.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(context.Background(), webhookName, types.JSONPatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, 20*time.Second, func() (string, bool) { return i.bundle(), i.bundle() == good })
	t.Logf("kept again %s after it is back", took.Round(time.Millisecond))
}
