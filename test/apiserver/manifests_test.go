package apiserver

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/routefence/routefence/test/rig"
)

const manifests = "../../manifests"

// render builds a kustomization.
func render(t rig.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("kustomize %s: %v", dir, err)
	}
	var out []*unstructured.Unstructured
	for _, r := range built.Resources() {
		text, err := r.MarshalJSON()
		u := &unstructured.Unstructured{}
		if err == nil {
			err = json.Unmarshal(text, &u.Object)
		}
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		out = append(out, u)
	}
	return out
}

// overlay writes a kustomization over those in manifests and renders it.
func overlay(t *testing.T, base string, components ...string) []*unstructured.Unstructured {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	if root, err = filepath.EvalSymlinks(root); err == nil {
		root, err = filepath.Rel(dir, root)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + root + "/" + base + "]\nimages: [{name: routefence, newName: registry.test/routefence, newTag: v1}]\ncomponents:\n"
	for _, c := range components {
		text += "- " + root + "/" + c + "\n"
	}
	writeFile(t, filepath.Join(dir, "kustomization.yaml"), []byte(text))
	return render(t, dir)
}

// apply does what "kubectl apply --server-side" does.
func (s *seed) apply(objects ...*unstructured.Unstructured) {
	s.t.Helper()
	for _, u := range objects {
		plural, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		o := metav1.ApplyOptions{FieldManager: "kubectl", Force: true}
		if _, err := s.client(plural, u.GetNamespace()).Apply(context.Background(), u.GetName(), u, o); err != nil {
			s.t.Fatalf("apply %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// stubCRD stands in for one of Calico or prometheus-operator, whose modules are too heavy for what is asked of them here.
func stubCRD(group, version, kind, scope string) []byte {
	lower := strings.ToLower(kind)
	plural := lower + "s"
	if p, ok := strings.CutSuffix(lower, "y"); ok {
		plural = p + "ies"
	}
	return []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + plural + `.` + group + `"},
		"spec":{"group":"` + group + `","scope":"` + scope + `","names":{"kind":"` + kind + `","plural":"` + plural + `","singular":"` + lower + `"},
		"versions":[{"name":"` + version + `","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, u := range objects {
		if u.GetKind() == kind && u.GetName() == name {
			return u
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// Every manifest is taken by the API server, in every combination in which it is meant to be used.
func TestManifestsAreTaken(t *testing.T) {
	shared.install(stubCRD("monitoring.coreos.com", "v1", "PodMonitor", "Namespaced"), stubCRD("monitoring.coreos.com", "v1", "PrometheusRule", "Namespaced"),
		stubCRD("crd.projectcalico.org", "v1", "IPPool", "Cluster"), stubCRD("crd.projectcalico.org", "v1", "GlobalNetworkPolicy", "Cluster"))
	seen := map[string]bool{}
	for name, objects := range map[string][]*unstructured.Unstructured{
		"webhook":        overlay(t, "webhook"),
		"with all":       overlay(t, "webhook", "monitoring", "pods"),
		"provider-local": overlay(t, "provider-local", "monitoring"),
	} {
		for _, u := range objects {
			seen[u.GetKind()+" "+u.GetName()] = true
		}
		shared.apply(objects...)
		webhook := find(t, objects, "Deployment", "routefence-webhook")
		containers, _, _ := unstructured.NestedSlice(webhook.Object, "spec", "template", "spec", "containers")
		if image := containers[0].(map[string]any)["image"]; image != "registry.test/routefence:v1" {
			t.Errorf("%s: image %v", name, image)
		}
		command := containers[0].(map[string]any)["command"].([]any)
		if pods := slices.Contains(command, any("--pods")); pods != (name == "with all") {
			t.Errorf("%s: command %v", name, command)
		}
	}
	for _, kind := range []string{"IPPool shoot-machine-pods-shoot--local--local", "GlobalNetworkPolicy routefence-no-way-to-machines", "PodMonitor routefence-agents",
		"PrometheusRule routefence", "NetworkPolicy routefence-machines", "PodDisruptionBudget routefence-webhook"} {
		if !seen[kind] {
			t.Errorf("no %s among the manifests", kind)
		}
	}
	files, err := filepath.Glob(manifests + "/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		list, err := os.ReadFile(filepath.Join(filepath.Dir(file), "kustomization.yaml"))
		if err != nil || !strings.Contains(string(list), "- "+filepath.Base(file)+"\n") {
			t.Errorf("%s is in no kustomization (%v)", file, err)
		}
	}
	shared.dismantle(t)
}

// dismantle takes the webhook's configuration away, which concerns all namespaces.
func (s *seed) dismantle(t *testing.T) {
	t.Helper()
	err := s.typed.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(context.Background(), "routefence-webhook", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// What no combination may do: reach further than control planes, or hold up what it does not concern (FR-43).
func TestConfigurationsAreNarrow(t *testing.T) {
	for _, objects := range [][]*unstructured.Unstructured{overlay(t, "webhook", "pods"), overlay(t, "provider-local")} {
		configuration := find(t, objects, "MutatingWebhookConfiguration", "routefence-webhook")
		webhooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
		if len(webhooks) == 0 {
			t.Error("no webhook")
		}
		for _, w := range webhooks {
			webhook := w.(map[string]any)
			for field, want := range map[string]any{"failurePolicy": "Fail", "sideEffects": "None", "reinvocationPolicy": "IfNeeded", "matchPolicy": "Equivalent"} {
				if webhook[field] != want {
					t.Errorf("%s: %s is %v, want %v", webhook["name"], field, webhook[field], want)
				}
			}
			if seconds, _ := webhook["timeoutSeconds"].(float64); seconds < 1 || seconds > 5 {
				t.Errorf("%s: timeoutSeconds is %v", webhook["name"], webhook["timeoutSeconds"])
			}
			rules, err := json.Marshal(webhook["rules"])
			if err != nil || strings.Contains(string(rules), "*") || strings.Contains(string(rules), "/") {
				t.Errorf("%s: rules %s", webhook["name"], rules)
			}
			if role, _, _ := unstructured.NestedString(webhook, "namespaceSelector", "matchLabels", "gardener.cloud/role"); role != "shoot" {
				t.Errorf("%s: namespaces with role %q", webhook["name"], role)
			}
		}
	}
}
