package inject_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// forms are all options that change the shape of what is injected.
var forms = map[string]func(*inject.Options){
	"default":    func(*inject.Options) {},
	"pair":       func(o *inject.Options) { o.Form = inject.Pair },
	"legacy":     func(o *inject.Options) { o.Firewall = "legacy" },
	"nft":        func(o *inject.Options) { o.Firewall = "nft" },
	"api":        func(o *inject.Options) { o.Source = inject.APISource },
	"config map": func(o *inject.Options) { o.Source = "configmap/nodes/list" },
	"tunneled":   func(o *inject.Options) { o.ReadyWhen, o.LogLevel = "tunneled", "debug" },
	"pair, api, legacy": func(o *inject.Options) {
		o.Form, o.Source, o.Firewall = inject.Pair, inject.APISource, "legacy"
	},
}

func with(form string) inject.Options {
	o := options
	forms[form](&o)
	return o
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// pod reads the pods of an object as Kubernetes does, which knows every field that is there.
func pod(t testing.TB, object map[string]any) corev1.PodTemplateSpec {
	t.Helper()
	strict := func(into any) {
		d := json.NewDecoder(bytes.NewReader(marshal(t, object)))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Fatalf("not as Kubernetes has it: %v", err)
		}
	}
	switch object["kind"] {
	case "Deployment":
		var d appsv1.Deployment
		strict(&d)
		return d.Spec.Template
	case "StatefulSet":
		var s appsv1.StatefulSet
		strict(&s)
		return s.Spec.Template
	}
	var p corev1.Pod
	strict(&p)
	return corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

// ours returns the containers that were injected, by name.
func ours(p corev1.PodTemplateSpec) map[string]corev1.Container {
	out := map[string]corev1.Container{}
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if strings.HasPrefix(c.Name, "routefence") {
			out[c.Name] = c
		}
	}
	return out
}

// agent returns the one that runs on.
func agent(t testing.TB, object map[string]any) corev1.Container {
	t.Helper()
	c, ok := ours(pod(t, object))["routefence"]
	if !ok {
		t.Fatal("there is no container routefence")
	}
	return c
}

func env(c corev1.Container) map[string]string {
	out := map[string]string{}
	for _, v := range c.Env {
		out[v.Name] = v.Value
	}
	return out
}

// edit returns a workload of the corpus, changed. The function gets its pods' metadata and spec.
func edit(name string, change func(meta, spec map[string]any)) map[string]any {
	object := gardener.Get(name).Tree()
	pod := object
	if object["kind"] != "Pod" {
		pod = object["spec"].(map[string]any)["template"].(map[string]any)
	}
	change(pod["metadata"].(map[string]any), pod["spec"].(map[string]any))
	return object
}

// annotated returns a workload with annotations of the object itself, which is where they survive gardenlet.
func annotated(name string, annotations map[string]any) map[string]any {
	object := gardener.Get(name).Tree()
	object["metadata"].(map[string]any)["annotations"] = annotations
	return object
}

func container(spec map[string]any, list, name string) map[string]any {
	for _, c := range spec[list].([]any) {
		if c := c.(map[string]any); c["name"] == name {
			return c
		}
	}
	return nil
}
