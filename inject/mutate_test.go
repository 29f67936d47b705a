package inject_test

import (
	"bytes"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
)

// TestPureAndStable: the argument stays as it is, the same object gives the same bytes each time, as it comes from gardenlet without the
// sidecar at every reconcile, and what has the fence is left as it is.
func TestPureAndStable(t *testing.T) {
	for _, w := range gardener.Objects() {
		for form := range forms {
			t.Run(w.Name+" "+form, func(t *testing.T) {
				object := w.Tree()
				before := marshal(t, object)
				r := mutate(t, object, with(form))
				if !bytes.Equal(marshal(t, object), before) {
					t.Error("the argument was changed")
				}
				first := marshal(t, r.Object)
				for range 10 {
					if again := marshal(t, mutate(t, w.Tree(), with(form)).Object); !bytes.Equal(again, first) {
						t.Fatalf("not the same each time:\n%s\n%s", first, again)
					}
				}
				second := mutate(t, r.Object, with(form))
				if !bytes.Equal(marshal(t, second.Object), first) {
					t.Errorf("a second run changes\n%s\nto\n%s", first, marshal(t, second.Object))
				}
				if want := map[bool]inject.Outcome{true: inject.Unchanged, false: inject.LeftAlone}[w.Fenced]; second.Outcome != want {
					t.Errorf("a second run says %s, want %s", second.Outcome, want)
				}
			})
		}
	}
}

// TestOrder: the fence is first, container 0 stays container 0, and all others keep their order.
func TestOrder(t *testing.T) {
	names := func(object map[string]any) (out []string) {
		p := pod(t, object)
		for _, c := range p.Spec.InitContainers {
			out = append(out, c.Name)
		}
		out = append(out, "|")
		for _, c := range p.Spec.Containers {
			out = append(out, c.Name)
		}
		return out
	}
	for _, w := range gardener.Objects() {
		if !w.Fenced {
			continue
		}
		before := strings.Join(names(w.Tree()), " ")
		if got, want := strings.Join(names(mutate(t, w.Tree(), options).Object), " "), "routefence "+before; got != want {
			t.Errorf("%s: %s, want %s", w.Name, got, want)
		}
		if got, want := strings.Join(names(mutate(t, w.Tree(), with("pair")).Object), " "), "routefence-init "+before+" routefence"; got != want {
			t.Errorf("%s as a pair: %s, want %s", w.Name, got, want)
		}
	}
}

// TestFormChanges: from a sidecar to a pair and back, nothing of the former form stays.
func TestFormChanges(t *testing.T) {
	native := mutate(t, gardener.Get("kube-apiserver-ha").Tree(), options).Object
	pair := mutate(t, native, with("pair")).Object
	if want := mutate(t, gardener.Get("kube-apiserver-ha").Tree(), with("pair")).Object; !reflect.DeepEqual(pair, want) {
		t.Errorf("to a pair:\n%s\nwant\n%s", marshal(t, pair), marshal(t, want))
	}
	if back := mutate(t, pair, options).Object; !reflect.DeepEqual(back, native) {
		t.Errorf("back:\n%s\nwant\n%s", marshal(t, back), marshal(t, native))
	}
	rich := mutate(t, native, with("pair, api, legacy")).Object
	back := mutate(t, rich, options).Object
	// The label stays: it may be gardenlet's own.
	if !reflect.DeepEqual(back, native) {
		t.Errorf("back from volumes and variables:\n%s\nwant\n%s", marshal(t, back), marshal(t, native))
	}
}

// TestProbes: startup as soon as the fence stands, whatever the VPN does, and liveness slower than readiness.
func TestProbes(t *testing.T) {
	for _, form := range []string{"default", "pair"} {
		r := mutate(t, gardener.Get("kube-apiserver-ha").Tree(), with(form))
		c := agent(t, r.Object)
		if c.StartupProbe.HTTPGet.Path != "/startupz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" {
			t.Errorf("%s: probes %v %v %v", form, c.StartupProbe, c.ReadinessProbe, c.LivenessProbe)
		}
		if c.Ports[0].ContainerPort != 9604 || c.StartupProbe.HTTPGet.Port.String() != c.Ports[0].Name {
			t.Errorf("%s: ports %v, probed at %v", form, c.Ports, c.StartupProbe.HTTPGet.Port)
		}
		if c.StartupProbe.PeriodSeconds != 1 || c.StartupProbe.InitialDelaySeconds != 0 || c.StartupProbe.FailureThreshold < 60 {
			t.Errorf("%s: the startup probe holds others up, or ends a slow start: %+v", form, c.StartupProbe)
		}
		if always := c.RestartPolicy != nil && *c.RestartPolicy == "Always"; always != (form == "default") {
			t.Errorf("%s: restart policy %v", form, c.RestartPolicy)
		}
		if one := ours(pod(t, r.Object))["routefence-init"]; form == "pair" && (one.Args[0] != "init" || one.StartupProbe != nil || one.RestartPolicy != nil || len(one.Ports) > 0) {
			t.Errorf("the init container is %+v", one)
		}
	}
}

// TestNetworks: where the node networks come from, and what difference the Cluster makes.
func TestNetworks(t *testing.T) {
	prefixes := func(all ...string) (out []netip.Prefix) {
		for _, s := range all {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	for name, c := range map[string]struct {
		object   map[string]any
		networks []netip.Prefix
		env      string // SHOOT_NODE_NETWORKS and ROUTEFENCE_NODE_NETWORKS
		warning  string
	}{
		"the pod's":                      {gardener.Get("vpn-seed-server").Tree(), nil, "10.0.0.0/16 ", ""},
		"the Cluster's, the same":        {gardener.Get("vpn-seed-server").Tree(), prefixes("10.0.0.0/16"), "10.0.0.0/16 ", ""},
		"the Cluster's, in two halves":   {gardener.Get("vpn-seed-server").Tree(), prefixes("10.0.128.0/17", "10.0.0.0/17"), "10.0.0.0/16 ", ""},
		"the Cluster's, more":            {gardener.Get("vpn-seed-server").Tree(), prefixes("10.250.0.0/16", "10.0.0.0/16"), "10.0.0.0/16 10.0.0.0/16,10.250.0.0/16", ""},
		"the Cluster's alone":            {gardener.Get("kube-apiserver").Tree(), prefixes("fd00:10:1:100::/56", "10.0.0.0/16"), " 10.0.0.0/16,fd00:10:1:100::/56", ""},
		"FR-22 host bits":                {gardener.Get("kube-apiserver").Tree(), prefixes("10.0.2.3/16"), " 10.0.0.0/16", ""},
		"FR-26 a default route":          {gardener.Get("kube-apiserver").Tree(), prefixes("0.0.0.0/0", "10.0.0.0/16"), " 10.0.0.0/16", "0.0.0.0/0 is left out"},
		"the last of a name counts":      {edit("vpn-seed-server", says("vpn-seed-server", literal("10.7.0.0/16"))), nil, "10.7.0.0/16 ", ""},
		"names from before v1.124":       {edit("vpn-seed-server", rename("NODE_NETWORK")), nil, "10.0.0.0/16 ", ""},
		"FR-25 an odd list is kept":      {edit("vpn-seed-server", says("vpn-seed-server", literal(" 10.7.0.0/16, ,10.8.0.0/16;"))), nil, " 10.7.0.0/16, ,10.8.0.0/16; ", ""},
		"FR-28 a bad item is warned of":  {edit("vpn-seed-server", says("vpn-seed-server", literal("10.7.0.0/16,fe80::/64"))), nil, "10.7.0.0/16,fe80::/64 ", "fe80::/64"},
		"containers that differ":         {edit("kube-apiserver-ha", says("vpn-client-1", literal("10.9.0.0/16"))), nil, "10.0.0.0/16,10.9.0.0/16 ", ""},
		"a variable that refers to more": {edit("vpn-seed-server", says("vpn-seed-server", refers)), prefixes("10.0.0.0/16"), " 10.0.0.0/16", ""},

		"a reference, then literals":                  {edit("kube-apiserver-ha", says("vpn-client-init", refers)), nil, " 10.0.0.0/16", ""},
		"literals, then a reference":                  {edit("kube-apiserver-ha", says("vpn-client-1", refers)), nil, " 10.0.0.0/16", ""},
		"those, and the Cluster's are the same":       {edit("kube-apiserver-ha", says("vpn-client-1", refers)), prefixes("10.0.0.0/16"), " 10.0.0.0/16", ""},
		"those, and the Cluster's are others":         {edit("kube-apiserver-ha", says("vpn-client-1", refers)), prefixes("10.250.0.0/16"), " 10.0.0.0/16,10.250.0.0/16", ""},
		"a bad item beside a reference is no trouble": {edit("kube-apiserver-ha", says("vpn-client-1", refers, "vpn-client-0", literal("fe80::/64"))), nil, " 10.0.0.0/16", "fe80::/64\": fe80::/64 belongs to link-local (fe80::/10), which must stay reachable; it is left out"},
		"the same reference twice":                    {edit("kube-apiserver-ha", says("vpn-client-0", refers, "vpn-client-1", refers)), nil, " 10.0.0.0/16", ""},
		"an empty value beside its reference":         {edit("vpn-seed-server", says("vpn-seed-server", map[string]any{"name": "SHOOT_NODE_NETWORKS", "value": "", "valueFrom": from("x")["valueFrom"]})), nil, " ", ""},
		"references that differ":                      {edit("kube-apiserver-ha", says("vpn-client-0", refers, "vpn-client-1", refersElsewhere)), nil, " 10.0.0.0/16", "take it from different places"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options
			o.Networks = c.networks
			r := mutate(t, c.object, o)
			if r.Outcome != inject.Injected {
				t.Fatalf("%s: %s", r.Outcome, r.Message)
			}
			got := env(agent(t, r.Object))
			if joined := got["SHOOT_NODE_NETWORKS"] + " " + got["ROUTEFENCE_NODE_NETWORKS"]; joined != c.env {
				t.Errorf("got %q, want %q", joined, c.env)
			}
			if warned := strings.Join(r.Warnings, "\n"); c.warning == "" && warned != "" || !strings.Contains(warned, c.warning) {
				t.Errorf("warnings %q, want %q", warned, c.warning)
			}
		})
	}
}

func rename(to string) func(meta, spec map[string]any) {
	return func(_, spec map[string]any) {
		for _, v := range container(spec, "containers", "vpn-seed-server")["env"].([]any) {
			if v := v.(map[string]any); v["name"] == "SHOOT_NODE_NETWORKS" {
				v["name"] = to
			}
		}
	}
}

// says has containers say something of the node networks, for each name of one what follows.
func says(namesAndEntries ...any) func(meta, spec map[string]any) {
	return func(_, spec map[string]any) {
		for i := 0; i < len(namesAndEntries); i += 2 {
			name := namesAndEntries[i].(string)
			c := container(spec, "containers", name)
			if c == nil {
				c = container(spec, "initContainers", name)
			}
			c["env"] = append(c["env"].([]any), namesAndEntries[i+1])
		}
	}
}

func literal(value string) map[string]any {
	return map[string]any{"name": "SHOOT_NODE_NETWORKS", "value": value}
}

func from(configMap string) map[string]any {
	return map[string]any{"name": "SHOOT_NODE_NETWORKS", "valueFrom": map[string]any{"configMapKeyRef": map[string]any{"name": configMap, "key": "nodes"}}}
}

var refers, refersElsewhere = from("networks"), from("elsewhere")

// TestReference: a variable that refers to something is copied with its reference.
func TestReference(t *testing.T) {
	for _, v := range agent(t, mutate(t, edit("vpn-seed-server", says("vpn-seed-server", refers)), options).Object).Env {
		if v.Name == "SHOOT_NODE_NETWORKS" && v.ValueFrom.ConfigMapKeyRef.Key == "nodes" {
			return
		}
	}
	t.Error("the reference is lost")
}

// TestNoNetworks: a pod whose agent would never be ready is left alone, and that is said.
func TestNoNetworks(t *testing.T) {
	o := options
	o.Networks = nil
	for name, object := range map[string]map[string]any{
		"none":    gardener.Get("kube-apiserver").Tree(),
		"empty":   edit("vpn-seed-server", func(_, spec map[string]any) { setNodes(spec, "") }),
		"invalid": edit("vpn-seed-server", func(_, spec map[string]any) { setNodes(spec, "0.0.0.0/0") }),
	} {
		r := mutate(t, object, o)
		if r.Outcome != inject.LeftAlone || r.Reason != inject.NoNetworks || !strings.Contains(strings.Join(r.Warnings, "\n"), "spec.networking.nodes") {
			t.Errorf("%s: %s %s %q", name, r.Outcome, r.Reason, r.Warnings)
		}
		o := o
		o.Source = inject.APISource
		if r := mutate(t, object, o); r.Outcome != inject.Injected || !strings.Contains(strings.Join(r.Warnings, "\n"), "no node network is known yet") {
			t.Errorf("%s, through the API: %s %q", name, r.Outcome, r.Warnings)
		}
	}
}

func setNodes(spec map[string]any, value string) {
	for _, v := range container(spec, "containers", "vpn-seed-server")["env"].([]any) {
		if v := v.(map[string]any); v["name"] == "SHOOT_NODE_NETWORKS" {
			v["value"] = value
		}
	}
}
