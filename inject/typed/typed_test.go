package typed_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/inject/typed"
	"github.com/routefence/routefence/test/gardener"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

var options = inject.Options{Image: "registry.example/routefence:v1"}

// load reads a workload as clients do, which leave out what it is.
func load[T typed.Workload](t *testing.T, name string) *T {
	t.Helper()
	tree := gardener.Get(name).Tree()
	delete(tree, "apiVersion")
	delete(tree, "kind")
	data, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var object T
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	return &object
}

// twice mutates an object, and again, and expects of the second time that nothing changes.
func twice[T typed.Workload](t *testing.T, object *T, want inject.Outcome, init func(*T) []corev1.Container) {
	t.Helper()
	before, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	r, err := typed.Mutate(object, options)
	if err != nil || r.Outcome != want {
		t.Fatalf("%s, %v; want %s", r.Outcome, err, want)
	}
	if want == inject.LeftAlone {
		if after, _ := json.Marshal(object); string(after) != string(before) {
			t.Errorf("left alone, and changed from\n%s\nto\n%s", before, after)
		}
		return
	}
	if first := init(object)[0]; first.Name != "routefence" {
		t.Errorf("the first container is %s", first.Name)
	}
	once := *object
	r, err = typed.Mutate(object, options)
	if err != nil || r.Outcome != inject.Unchanged || !reflect.DeepEqual(*object, once) {
		t.Errorf("a second time: %s, %v", r.Outcome, err)
	}
}

func TestMutate(t *testing.T) {
	deployment := func(d *appsv1.Deployment) []corev1.Container { return d.Spec.Template.Spec.InitContainers }
	twice(t, load[appsv1.Deployment](t, "vpn-seed-server"), inject.Injected, deployment)
	twice(t, load[appsv1.Deployment](t, "kube-apiserver-ha-overlap"), inject.Injected, deployment)
	twice(t, load[appsv1.Deployment](t, "kube-apiserver-workerless"), inject.LeftAlone, deployment)
	twice(t, load[appsv1.StatefulSet](t, "vpn-seed-server-ha"), inject.Injected,
		func(s *appsv1.StatefulSet) []corev1.Container { return s.Spec.Template.Spec.InitContainers })
	template := load[appsv1.Deployment](t, "kube-apiserver-ha").Spec.Template
	twice(t, &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}, inject.Injected,
		func(p *corev1.Pod) []corev1.Container { return p.Spec.InitContainers })
}

// TestRefused: an object that must not be used stays as it was.
func TestRefused(t *testing.T) {
	object := load[appsv1.Deployment](t, "vpn-seed-server")
	object.Spec.Template.Spec.Containers[1].Name = "routefence"
	before := *object.DeepCopy()
	if _, err := typed.Mutate(object, options); err == nil || !reflect.DeepEqual(*object, before) {
		t.Errorf("error %v", err)
	}
}
