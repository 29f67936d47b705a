package image

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
	"github.com/routefence/routefence/test/rig"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podSpec is what the tests need of an injected object.
type podSpec struct {
	InitContainers []struct {
		Name string
		Args []string
		Env  []struct {
			Name, Value string
			ValueFrom   struct{ FieldRef struct{ FieldPath string } }
		}
		SecurityContext struct {
			Capabilities                                     struct{ Add, Drop []string }
			RunAsUser                                        uint32
			ReadOnlyRootFilesystem, Privileged, RunAsNonRoot bool
			AllowPrivilegeEscalation                         *bool
		}
		Resources    struct{ Limits struct{ Memory string } }
		VolumeMounts []struct {
			Name, MountPath string
			ReadOnly        bool
		}
	}
}

// facts are what Kubernetes tells a pod of itself.
var facts = map[string]string{"status.hostIP": "192.0.2.1", "status.podIP": rig.Pod4.String(), "metadata.name": "kube-apiserver-0",
	"metadata.namespace": "shoot--dev--one", "metadata.uid": "0b1b7c2e-0000-4000-8000-000000000000"}

// injectedSpec is what is injected into a kube-apiserver pod.
func (p pod) injectedSpec(o inject.Options) podSpec {
	p.t.Helper()
	o.Image = "routefence:test"
	r, err := inject.Mutate(gardener.Get("kube-apiserver-ha").Tree(), o)
	if err != nil {
		p.t.Fatal(err)
	}
	var object struct {
		Spec struct{ Template struct{ Spec podSpec } }
	}
	data, err := json.Marshal(r.Object)
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return object.Spec.Template.Spec
}

// injected is its first container, with an empty directory for each emptyDir, and what the ConfigMap would hold if that is the source.
func (p pod) injected(o inject.Options, configMap string) container {
	p.t.Helper()
	first := p.injectedSpec(o).InitContainers[0]
	security := first.SecurityContext
	if first.Name != "routefence" || !security.ReadOnlyRootFilesystem || security.Privileged || security.RunAsUser != 0 ||
		security.AllowPrivilegeEscalation == nil || *security.AllowPrivilegeEscalation || !slices.Equal(security.Capabilities.Drop, []string{"ALL"}) {
		p.t.Fatalf("the first container is not what this test runs: %+v", first)
	}
	limit := resource.MustParse(first.Resources.Limits.Memory)
	c := container{args: first.Args, caps: security.Capabilities.Add, memory: limit.Value(), volumes: map[string]string{}}
	for _, v := range first.Env {
		c.env = append(c.env, v.Name+"="+v.Value+facts[v.ValueFrom.FieldRef.FieldPath])
	}
	for _, m := range first.VolumeMounts {
		dir := filepath.Join(p.t.TempDir(), m.Name)
		if err := os.Mkdir(dir, 0o777); err != nil {
			p.t.Fatal(err)
		}
		c.volumes[m.MountPath] = dir
		if m.ReadOnly {
			c.readOnly = append(c.readOnly, m.MountPath)
			if err := os.WriteFile(filepath.Join(dir, inject.DefaultKey), []byte(configMap), 0o644); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	return c
}
