package inject_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The tests of this file are named after the reports from the field in docs/field-reports.md.

// TestFR45ContainerInBetween: others put containers in as well. The fence stays first, and theirs stay.
func TestFR45ContainerInBetween(t *testing.T) {
	stranger := map[string]any{"name": "other-webhook", "image": "other:1"}
	once := mutate(t, gardener.Get("kube-apiserver-ha").Tree(), options).Object
	for name, at := range map[string]int{"behind": 1, "in front": 0} {
		object := mutate(t, once, options).Object
		spec := object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		spec["initContainers"] = slices.Insert(spec["initContainers"].([]any), at, any(stranger))
		spec["containers"] = slices.Insert(spec["containers"].([]any), 1, any(stranger))
		r := mutate(t, object, options)
		if want := map[string]inject.Outcome{"behind": inject.Unchanged, "in front": inject.Injected}[name]; r.Outcome != want {
			t.Errorf("%s: %s, want %s", name, r.Outcome, want)
		}
		var names []string
		for _, c := range pod(t, r.Object).Spec.InitContainers {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != "routefence other-webhook vpn-client-init" {
			t.Errorf("%s: init containers %s", name, got)
		}
		if again := mutate(t, r.Object, options); again.Outcome != inject.Unchanged {
			t.Errorf("%s: a third run says %s", name, again.Outcome)
		}
	}
}

// TestFR45OthersInOurContainer: what others put into our container stays there, and what is ours is put right.
func TestFR45OthersInOurContainer(t *testing.T) {
	object := mutate(t, gardener.Get("vpn-seed-server").Tree(), options).Object
	spec := object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	c := container(spec, "initContainers", "routefence")
	c["env"] = append(c["env"].([]any), map[string]any{"name": "ROUTEFENCE_RESYNC", "value": "5s"}, map[string]any{"name": "TZ", "value": "UTC"})
	c["volumeMounts"] = append(c["volumeMounts"].([]any), map[string]any{"name": "theirs", "mountPath": "/theirs"})
	c["fieldOfTomorrow"] = "x"
	if r := mutate(t, object, options); r.Outcome != inject.Unchanged {
		t.Errorf("%s:\n%s\n%s", r.Outcome, marshal(t, object), marshal(t, r.Object))
	}
	c["securityContext"] = map[string]any{"runAsUser": 65532.0}
	c["command"] = []any{"sleep"}
	c["args"] = []any{"init"}
	delete(c, "startupProbe")
	c["env"] = c["env"].([]any)[1:]
	delete(c, "fieldOfTomorrow")
	got := agent(t, mutate(t, object, options).Object)
	if len(got.Command) > 0 || got.Args[0] != "run" || got.StartupProbe == nil || *got.SecurityContext.RunAsUser != 0 || got.Env[0].Name != "HOST_IP" {
		t.Errorf("not put right: %+v", got)
	}
	if e := env(got); e["ROUTEFENCE_RESYNC"] != "5s" || e["TZ"] != "UTC" || got.VolumeMounts[1].MountPath != "/theirs" {
		t.Errorf("what is theirs is lost: %+v", got)
	}
}

// TestFR45UserOverrides: image and resources that somebody changed in the container stay, through new defaults too; those that nobody
// changed follow the defaults, and annotations go before all.
func TestFR45UserOverrides(t *testing.T) {
	object := mutate(t, gardener.Get("vpn-seed-server").Tree(), options).Object
	spec := object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	c := container(spec, "initContainers", "routefence")
	c["image"] = "mine:2"
	c["resources"].(map[string]any)["limits"].(map[string]any)["memory"] = "0.5Gi"
	for range 3 {
		newer := options
		newer.Image, newer.Resources.CPURequest = "registry.example/routefence:v2", "20m"
		object = mutate(t, object, newer).Object
		got := agent(t, object)
		if got.Image != "mine:2" || got.Resources.Limits.Memory().String() != "512Mi" || got.Resources.Requests.Cpu().String() != "20m" {
			t.Errorf("image %s, resources %v", got.Image, got.Resources)
		}
	}
	object["metadata"].(map[string]any)["annotations"] = map[string]any{
		"routefence.io/image": "theirs:3", "routefence.io/resources": `{"limits":{"memory":"1Gi"}}`}
	if got := agent(t, mutate(t, object, options).Object); got.Image != "theirs:3" || got.Resources.Limits.Memory().String() != "1Gi" {
		t.Errorf("with annotations: image %s, resources %v", got.Image, got.Resources)
	}
}

// TestFR45NameClash: what merely has our names is not touched, and the message says what to do.
func TestFR45NameClash(t *testing.T) {
	theirs := map[string]any{"name": "routefence", "image": "theirs:1"}
	for name, change := range map[string]func(meta, spec map[string]any){
		"container routefence":      func(_, spec map[string]any) { spec["containers"] = append(spec["containers"].([]any), theirs) },
		"container routefence-init": func(_, spec map[string]any) { container(spec, "initContainers", "setup")["name"] = "routefence-init" },
		"volume routefence-run": func(_, spec map[string]any) {
			spec["volumes"] = append(spec["volumes"].([]any), map[string]any{"name": "routefence-run", "emptyDir": map[string]any{}})
		},
	} {
		_, err := inject.Mutate(edit("vpn-seed-server", change), options)
		if err == nil || !strings.Contains(err.Error(), "Deployment vpn-seed-server: "+name+": has a name that routefence needs") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFR47HostNetwork: no fence in a node's network, even if somebody asks for it.
func TestFR47HostNetwork(t *testing.T) {
	for _, ask := range []bool{false, true} {
		object := edit("kube-apiserver-host-network", func(meta, _ map[string]any) {
			if ask {
				meta["annotations"].(map[string]any)[inject.InjectKey] = "true"
			}
		})
		before := marshal(t, object)
		r := mutate(t, object, options)
		if r.Outcome != inject.LeftAlone || r.Reason != inject.HostNetwork || len(r.Warnings) != 1 || !bytes.Equal(marshal(t, r.Object), before) {
			t.Errorf("%s %s %q", r.Outcome, r.Reason, r.Warnings)
		}
	}
}

// TestFR48SecurityContext: ours is complete, whatever the pod and its containers have, and says nothing twice.
func TestFR48SecurityContext(t *testing.T) {
	hostile := func(_, spec map[string]any) {
		spec["securityContext"] = map[string]any{"runAsNonRoot": true, "runAsUser": 65532.0, "runAsGroup": 65532.0, "fsGroup": 65532.0,
			"seccompProfile": map[string]any{"type": "Unconfined"}}
		for _, c := range spec["containers"].([]any) {
			c.(map[string]any)["securityContext"] = map[string]any{"capabilities": map[string]any{"drop": []any{"ALL", "NET_RAW", "NET_ADMIN"}}}
		}
	}
	for _, w := range gardener.Objects() {
		if !w.Fenced {
			continue
		}
		for form := range forms {
			for name, c := range ours(pod(t, mutate(t, edit(w.Name, hostile), with(form)).Object)) {
				s := c.SecurityContext
				if *s.RunAsUser != 0 || *s.RunAsGroup != 0 || *s.RunAsNonRoot || *s.Privileged || *s.AllowPrivilegeEscalation ||
					!*s.ReadOnlyRootFilesystem || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
					t.Errorf("%s, %s, %s: %+v", w.Name, form, name, s)
				}
				want := []corev1.Capability{"NET_ADMIN"}
				if readsLegacy(w.Name, form) {
					want = append(want, "NET_RAW")
				}
				if !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, want) {
					t.Errorf("%s, %s, %s: %+v, want %v added", w.Name, form, name, s.Capabilities, want)
				}
			}
		}
	}
}

// readsLegacy says where legacy iptables must be read or written: where it is asked for, and where the VPN translates, as its rules are
// in whichever backend it chose.
func readsLegacy(workload, form string) bool {
	switch form {
	case "legacy", "pair, api, legacy":
		return true
	case "nft":
		return false
	}
	return workload == "vpn-seed-server" || workload == "kube-apiserver-ha-overlap"
}

// TestFR49LockFile: legacy iptables has a lock file on a root file system that is read-only, and nft needs no volume at all.
func TestFR49LockFile(t *testing.T) {
	for _, w := range gardener.Objects() {
		if !w.Fenced {
			continue
		}
		for _, form := range []string{"default", "pair", "legacy", "nft"} {
			p := pod(t, mutate(t, w.Tree(), with(form)).Object)
			for name, c := range ours(p) {
				if !readsLegacy(w.Name, form) {
					if len(c.VolumeMounts) > 0 {
						t.Errorf("%s, %s, %s: mounts %v", w.Name, form, name, c.VolumeMounts)
					}
					continue
				}
				if len(c.VolumeMounts) != 1 || c.VolumeMounts[0].MountPath != "/run" || c.VolumeMounts[0].ReadOnly ||
					!slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == c.VolumeMounts[0].Name && v.EmptyDir != nil }) {
					t.Errorf("%s, %s, %s: mounts %v of %v", w.Name, form, name, c.VolumeMounts, p.Spec.Volumes)
				}
			}
		}
	}
}

// TestFR49PodSecurity: a level that forbids NET_ADMIN is warned of.
func TestFR49PodSecurity(t *testing.T) {
	for level, warned := range map[string]bool{"": false, "privileged": false, "baseline": true, "restricted": true} {
		o := options
		o.Enforce = level
		r := mutate(t, gardener.Get("vpn-seed-server").Tree(), o)
		if got := strings.Contains(strings.Join(r.Warnings, "\n"), "Pod Security level "+level+", which forbids NET_ADMIN"); got != warned {
			t.Errorf("level %q: %q", level, r.Warnings)
		}
	}
}

// TestFR50Quota: a quota with requests and limits takes the pods, whose limits are not below what is requested.
func TestFR50Quota(t *testing.T) {
	for _, w := range gardener.Objects() {
		if !w.Fenced {
			continue
		}
		for form := range forms {
			containers := ours(pod(t, mutate(t, w.Tree(), with(form)).Object))
			if len(containers) == 0 {
				t.Errorf("%s, %s: no container", w.Name, form)
			}
			for name, c := range containers {
				for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
					request, limit := c.Resources.Requests[r], c.Resources.Limits[r]
					if request.IsZero() || limit.IsZero() || request.Cmp(limit) > 0 {
						t.Errorf("%s, %s, %s: %s request %v, limit %v", w.Name, form, name, r, &request, &limit)
					}
				}
			}
		}
	}
}

// TestFR50Override: single values by annotation, the others by default; a Job is not touched.
func TestFR50Override(t *testing.T) {
	object := annotated("vpn-seed-server", map[string]any{"routefence.io/resources": `{"limits":{"memory":"1Gi","cpu":2},"requests":{"memory":"100M"}}`})
	got := agent(t, mutate(t, object, options).Object).Resources
	for r, want := range map[*resource.Quantity]string{got.Limits.Memory(): "1Gi", got.Limits.Cpu(): "2", got.Requests.Memory(): "100M", got.Requests.Cpu(): "10m"} {
		if r.String() != want {
			t.Errorf("%v, want %s", r, want)
		}
	}
	job := map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": gardener.Get("vpn-seed-server").Tree()["spec"]}
	if r := mutate(t, job, options); r.Outcome != inject.LeftAlone || r.Reason != inject.OtherKind {
		t.Errorf("a Job: %s %s", r.Outcome, r.Reason)
	}
}
