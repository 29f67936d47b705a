package apiserver

import (
	"context"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/routefence/routefence/inject"
	corpus "github.com/routefence/routefence/test/gardener"
)

// forms are the options that change the shape of what is injected.
var forms = map[string]inject.Options{
	"native":          {},
	"pair":            {Form: inject.Pair},
	"legacy":          {Firewall: "legacy"},
	"API":             {Source: inject.APISource},
	"ConfigMap":       {Source: "configmap/nodes"},
	"all, as a pair":  {Form: inject.Pair, Firewall: "legacy", Source: inject.APISource, ReadyWhen: "tunneled", LogLevel: "debug"},
	"other resources": {Resources: inject.Resources{CPULimit: "0.5", MemoryLimit: "1Gi", MemoryRequest: "1000Ki"}},
}

// What is injected is valid and knows no unknown field; the API server has nothing to fill in in our containers and volumes, as that would be a
// difference at the next look; and what it made of the object has the fence already.
func TestEveryFormIsComplete(t *testing.T) {
	for _, w := range corpus.Objects() {
		if !w.Fenced {
			continue
		}
		for name, o := range forms {
			t.Run(w.Name+" "+name, func(t *testing.T) {
				o.Image, o.Networks = "registry.example/routefence:v1", []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}
				u := workload(w.Name, "default")
				sent, err := inject.Mutate(u.Object, o)
				if err != nil {
					t.Fatal(err)
				}
				u = fromTree(sent.Object)
				stored, err := of(u).Create(context.Background(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"})
				if err != nil {
					t.Fatal(err)
				}
				for _, list := range []string{"initContainers", "containers", "volumes"} {
					want, got := ours(t, u, list), ours(t, stored, list)
					if !reflect.DeepEqual(want, got) {
						t.Errorf("%s: sent\n%v\nstored\n%v", list, want, got)
					}
				}
				if again, err := inject.Mutate(stored.Object, o); err != nil || again.Outcome != inject.Unchanged {
					t.Errorf("of what is stored: %s, %v", again.Outcome, err)
				}
			})
		}
	}
}

// ours are the items of a list of the pod whose name says so.
func ours(t *testing.T, u *unstructured.Unstructured, list string) (out []any) {
	t.Helper()
	all, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", list)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range all {
		if name, _ := item.(map[string]any)["name"].(string); strings.HasPrefix(name, "routefence") {
			out = append(out, item)
		}
	}
	return out
}
