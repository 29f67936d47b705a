package inject_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
)

// TestAnnotations: what an object may say, and what comes of nonsense.
func TestAnnotations(t *testing.T) {
	for name, c := range map[string]struct {
		key, value string
		// want is what the agent's environment or image then has, or the error, or the warning.
		env, image, err, warning string
	}{
		"image":               {key: "image", value: "mine:1", image: "mine:1"},
		"log level":           {key: "log-level", value: "debug", env: "ROUTEFENCE_LOG_LEVEL=debug"},
		"readiness":           {key: "ready-when", value: "tunneled", env: "ROUTEFENCE_READY_WHEN=tunneled"},
		"allow":               {key: "allow", value: "10.0.3.1/32, 10.0.4.0/24", env: "ROUTEFENCE_ALLOW=10.0.3.1/32, 10.0.4.0/24"},
		"replies":             {key: "replies", value: "on", env: "ROUTEFENCE_REPLIES=on"},
		"bad allow":           {key: "allow", value: "10.0.3.1/24", err: `annotation routefence.io/allow=10.0.3.1/24: "10.0.3.1/24": has host bits set; write 10.0.3.0/24`},
		"no network to allow": {key: "allow", value: "10.0.3.1", err: `annotation routefence.io/allow=10.0.3.1: "10.0.3.1": has no prefix length`},
		"mapped allow":        {key: "allow", value: "::ffff:10.1.0.0/112", env: "ROUTEFENCE_ALLOW=::ffff:10.1.0.0/112"},
		"blanks in allow":     {key: "allow", value: "10.1.0.0/24 10.2.0.0/24, ,", env: "ROUTEFENCE_ALLOW=10.1.0.0/24 10.2.0.0/24, ,"},
		"bad replies":         {key: "replies", value: "yes", err: "annotation routefence.io/replies=yes: want one of auto"},
		"source":              {key: "source", value: "configmap/nodes", env: "ROUTEFENCE_SHOOT_FILE=/etc/routefence/nodes"},
		"source with key":     {key: "source", value: "configmap/nodes/all.txt", env: "ROUTEFENCE_SHOOT_FILE=/etc/routefence/all.txt"},
		"source API":          {key: "source", value: "api", env: "ROUTEFENCE_SHOOT=cluster/shoot--dev--one", warning: "ServiceAccount default needs"},
		"unknown":             {key: "redy-when", value: "tunneled", warning: "annotation routefence.io/redy-when means nothing"},
		"bad log level":       {key: "log-level", value: "loud", err: "annotation routefence.io/log-level=loud: want one of debug"},
		"bad readiness":       {key: "ready-when", value: "tunnelled", err: "annotation routefence.io/ready-when=tunnelled: want one of fenced"},
		"bad source":          {key: "source", value: "http://x", err: "annotation routefence.io/source=http://x: want pod, api"},
		"source without name": {key: "source", value: "configmap/", err: "annotation routefence.io/source=configmap/: want configmap/NAME"},
		"source with path":    {key: "source", value: "configmap/a/b/c", err: "annotation routefence.io/source=configmap/a/b/c: want configmap/NAME"},
		"empty image":         {key: "image", value: "", err: "annotation routefence.io/image=: want the reference"},
		"bad resources":       {key: "resources", value: "64Mi", err: "annotation routefence.io/resources=64Mi: want JSON"},
		"unknown resource":    {key: "resources", value: `{"limits":{"disk":"1"}}`, err: `unknown field "disk"`},
		"negative resource":   {key: "resources", value: `{"limits":{"cpu":"-1"}}`, err: "limits.cpu=-1: is not a quantity"},
		"limit below request": {key: "resources", value: `{"limits":{"memory":"1Mi"}}`, err: "requests.memory=32Mi: is more than limits.memory=1Mi; give both"},
		"bad inject":          {key: "inject", value: "yes", err: `annotations[routefence.io/inject]=yes: want "true" or "false"`},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := inject.Mutate(annotated("vpn-seed-server", map[string]any{"routefence.io/" + c.key: c.value}), options)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "Deployment vpn-seed-server: ") {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := agent(t, r.Object)
			key, value, _ := strings.Cut(c.env, "=")
			if env(got)[key] != value || c.image != "" && got.Image != c.image {
				t.Errorf("image %s, environment %v", got.Image, got.Env)
			}
			if warned := strings.Join(r.Warnings, "\n"); c.warning == "" && warned != "" || !strings.Contains(warned, c.warning) {
				t.Errorf("warnings %q, want %q", warned, c.warning)
			}
		})
	}
}

// TestPodsGoBeforeObject: of two annotations the one nearer to the pod counts.
func TestPodsGoBeforeObject(t *testing.T) {
	object := annotated("vpn-seed-server", map[string]any{"routefence.io/image": "object:1", "routefence.io/log-level": "debug"})
	object["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)["annotations"] = map[string]any{"routefence.io/image": "pod:1"}
	if got := agent(t, mutate(t, object, options).Object); got.Image != "pod:1" || env(got)["ROUTEFENCE_LOG_LEVEL"] != "debug" {
		t.Errorf("image %s, environment %v", got.Image, got.Env)
	}
}

// TestReadyWhenTunneled: a kube-apiserver must not wait for what starts through it.
func TestReadyWhenTunneled(t *testing.T) {
	for _, w := range gardener.Objects() {
		if !w.Fenced {
			continue
		}
		r := mutate(t, w.Tree(), with("tunneled"))
		waits := env(agent(t, r.Object))["ROUTEFENCE_READY_WHEN"] == "tunneled"
		warned := strings.Contains(strings.Join(r.Warnings, "\n"), "deadlock")
		if server := strings.HasPrefix(w.Name, "vpn-seed-server"); waits != server || warned == server {
			t.Errorf("%s: waits for the tunnel: %v, warned: %v", w.Name, waits, warned)
		}
	}
}

// TestAsked: by name everything can be fenced that has a network of its own, and everything can be declined.
func TestAsked(t *testing.T) {
	for name, c := range map[string]struct {
		workload, in, value string
		outcome             inject.Outcome
		reason              inject.Reason
		warnings            int
	}{
		"a stranger":                {"etcd-main", "annotations", "true", inject.Injected, "", 0},
		"a stranger by label":       {"etcd-main", "labels", "true", inject.Injected, "", 0},
		"a workerless shoot's":      {"kube-apiserver-workerless", "annotations", "true", inject.Injected, "", 0},
		"a garden's":                {"virtual-garden-kube-apiserver", "annotations", "true", inject.Injected, "", 0},
		"declined":                  {"kube-apiserver-ha", "annotations", "false", inject.LeftAlone, inject.OptedOut, 1},
		"declined by label":         {"vpn-seed-server-ha", "labels", "false", inject.LeftAlone, inject.OptedOut, 1},
		"declined, and a stranger":  {"etcd-main", "annotations", "false", inject.LeftAlone, inject.NotControlPlane, 0},
		"a DaemonSet cannot be":     {"calico-node", "annotations", "true", inject.LeftAlone, inject.OtherKind, 0},
		"nor what is on the host":   {"kube-apiserver-self-hosted", "annotations", "true", inject.LeftAlone, inject.HostNetwork, 1},
		"nobody asked for the host": {"kube-apiserver-self-hosted", "", "", inject.LeftAlone, inject.SelfHosted, 0},
	} {
		t.Run(name, func(t *testing.T) {
			object := gardener.Get(c.workload).Tree()
			if meta := object["metadata"].(map[string]any); c.in != "" {
				values, ok := meta[c.in].(map[string]any)
				if !ok {
					values = map[string]any{}
					meta[c.in] = values
				}
				values[inject.InjectKey] = c.value
			}
			r := mutate(t, object, options)
			if r.Outcome != c.outcome || r.Reason != c.reason || len(r.Warnings) != c.warnings {
				t.Errorf("%s %s %q", r.Outcome, r.Reason, r.Warnings)
			}
		})
	}
	both := annotated("kube-apiserver-ha", map[string]any{inject.InjectKey: "false"})
	both["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)["annotations"] = map[string]any{inject.InjectKey: "true"}
	if r := mutate(t, both, options); r.Reason != inject.OptedOut {
		t.Errorf("asked and declined: %s %s", r.Outcome, r.Reason)
	}
}

// TestDeleted: what is on its way out is not touched.
func TestDeleted(t *testing.T) {
	object := gardener.Get("vpn-seed-server").Tree()
	object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-12-01T00:00:00Z"
	if r := mutate(t, object, options); r.Reason != inject.Deleted {
		t.Errorf("%s %s", r.Outcome, r.Reason)
	}
}

// TestPort: a port that another container has is not taken, and "kubectl exec" of status still finds the agent.
func TestPort(t *testing.T) {
	object := edit("vpn-seed-server", func(_, spec map[string]any) {
		c := container(spec, "containers", "envoy-proxy")
		c["ports"] = append(c["ports"].([]any), map[string]any{"containerPort": 9604.0}, map[string]any{"containerPort": 9605.0})
	})
	r := mutate(t, object, options)
	got := agent(t, r.Object)
	if got.Ports[0].ContainerPort != 9606 || env(got)["ROUTEFENCE_LISTEN"] != ":9606" || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "9606") {
		t.Errorf("ports %v, environment %v, warnings %q", got.Ports, got.Env, r.Warnings)
	}
	if again := mutate(t, r.Object, options); again.Outcome != inject.Unchanged {
		t.Errorf("a second run says %s", again.Outcome)
	}
}

// TestAPISource: token, way out and cache are there with this source, and with no other.
func TestAPISource(t *testing.T) {
	const label = "networking.gardener.cloud/to-runtime-apiserver"
	for form := range forms {
		p := pod(t, mutate(t, gardener.Get("vpn-seed-server").Tree(), with(form)).Object)
		c := ours(p)["routefence"]
		var volumes []string
		for _, v := range p.Spec.Volumes {
			if strings.HasPrefix(v.Name, "routefence-") {
				volumes = append(volumes, v.Name)
			}
		}
		token, cache := slices.Contains(volumes, "routefence-token"), slices.Contains(volumes, "routefence-cache")
		api := strings.Contains(form, "api")
		if token != api || cache != api || (p.Labels[label] == "allowed") != api || (env(c)["ROUTEFENCE_SHOOT"] == "cluster/shoot--dev--one") != api {
			t.Errorf("%s: volumes %v, labels %v, environment %v", form, volumes, p.Labels, c.Env)
		}
		if len(c.VolumeMounts) != len(volumes) {
			t.Errorf("%s: volumes %v, mounts %v", form, volumes, c.VolumeMounts)
		}
		if env(c)["SHOOT_NODE_NETWORKS"] != "10.0.0.0/16" {
			t.Errorf("%s: without the pod's own list a new pod waits for the API: %v", form, c.Env)
		}
	}
	_, err := inject.Mutate(edit("vpn-seed-server", func(_, _ map[string]any) {}), inject.Options{Image: "x", Source: inject.APISource, Cluster: "other"})
	if err != nil {
		t.Error(err)
	}
	nowhere := gardener.Get("vpn-seed-server").Tree()
	delete(nowhere["metadata"].(map[string]any), "namespace")
	if _, err := inject.Mutate(nowhere, with("api")); err == nil || !strings.Contains(err.Error(), "it is not known which Cluster") {
		t.Errorf("without a namespace: %v", err)
	}
	o := with("api")
	o.Namespace = "given"
	if got := env(agent(t, mutate(t, nowhere, o).Object)); got["ROUTEFENCE_SHOOT"] != "cluster/given" {
		t.Errorf("with a namespace from elsewhere: %v", got)
	}
}

// TestPodObjects: Pods are fenced as their templates are; FR-45: those of a template that has the fence, and that other webhooks have
// been at, are left as they are.
func TestPodObjects(t *testing.T) {
	template := mutate(t, gardener.Get("kube-apiserver-ha").Tree(), options).Object["spec"].(map[string]any)["template"].(map[string]any)
	object := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]}
	object["metadata"].(map[string]any)["generateName"] = "kube-apiserver-5d8f-"
	spec := object["spec"].(map[string]any)
	spec["securityContext"].(map[string]any)["seccompProfile"] = map[string]any{"type": "RuntimeDefault"}
	if r := mutate(t, object, options); r.Outcome != inject.Unchanged {
		t.Errorf("%s:\n%s\n%s", r.Outcome, marshal(t, object), marshal(t, r.Object))
	}
	bare := edit("kube-apiserver-ha", func(_, _ map[string]any) {})["spec"].(map[string]any)["template"].(map[string]any)
	r := mutate(t, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": bare["metadata"], "spec": bare["spec"]}, options)
	if got := pod(t, r.Object).Spec.InitContainers[0].Name; r.Outcome != inject.Injected || got != "routefence" {
		t.Errorf("%s, first container %s", r.Outcome, got)
	}
}

func TestFormFor(t *testing.T) {
	for version, want := range map[string]inject.Form{"1.28": inject.Pair, "1.28+": inject.Pair, "1.29": inject.NativeSidecar, "1.34+": inject.NativeSidecar,
		"2.0": inject.NativeSidecar, ".": inject.NativeSidecar} {
		major, minor, _ := strings.Cut(version, ".")
		if got := inject.FormFor(major, minor); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

// TestCheck: options that could never do are known to be wrong without an object.
func TestCheck(t *testing.T) {
	for form := range forms {
		if err := inject.Check(with(form)); err != nil {
			t.Errorf("%s: %v", form, err)
		}
	}
	for option, o := range map[string]inject.Options{
		"image": {}, "form": {Image: "x", Form: "odd"}, "source": {Image: "x", Source: "odd"}, "firewall": {Image: "x", Firewall: "odd"},
		"limits.cpu": {Image: "x", Resources: inject.Resources{CPULimit: "odd"}}, "image-pull-policy": {Image: "x", PullPolicy: "odd"},
	} {
		var bad *inject.OptionError
		if err := inject.Check(o); !errors.As(err, &bad) || bad.Option != option {
			t.Errorf("%s: %v", option, err)
		}
	}
}
