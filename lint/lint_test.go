package lint_test

import (
	"strings"
	"testing"

	"github.com/routefence/routefence/lint"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

const seed = `
metadata: {name: local}
spec:
  networks:
    nodes: 172.18.0.0/24
    pods: 10.1.0.0/16
    services: 10.2.0.0/16
    shootDefaults: {pods: 10.3.0.0/16, services: 10.4.0.0/16}
`

// shoot returns one with workers and these lines under spec.networking.
func shoot(networking string) string {
	return "metadata: {name: one, namespace: garden-local}\nspec:\n  provider: {workers: [{name: a}]}\n  networking: " + networking + "\n"
}

// cases are shoots and what must be said of them: severity, field, and a part of the message.
var cases = []struct {
	name, shoot, seed string
	want              []string
}{
	{"as provider-local has it", shoot(`{nodes: 10.0.0.0/16, pods: 10.3.0.0/16, services: 10.4.0.0/16}`), seed, nil},
	{"no seed", shoot(`{nodes: 10.250.0.0/16}`), "", nil},
	{"nodes missing", shoot(`{pods: 10.3.0.0/16}`), seed, []string{"error spec.networking.nodes no node network is known"}},
	{"nodes empty", shoot(`{nodes: ""}`), seed, []string{"error spec.networking.nodes no node network is known"}},
	{"networking missing", "spec: {provider: {workers: [{name: a}]}}", seed, []string{"error spec.networking.nodes no node network is known"}},
	{"nodes in the status alone", shoot(`{}`) + "status: {networking: {nodes: [10.0.0.0/16]}}", seed, nil},
	{"IPv6 without nodes", shoot(`{ipFamilies: [IPv6]}`), seed, []string{"warning spec.networking.nodes which is possible for an IPv6 shoot"}},
	{"workerless", "spec: {provider: {type: local}}", seed, nil},
	{"self-hosted", "spec: {provider: {workers: [{controlPlane: {}}]}, networking: {nodes: 10.1.0.0/16}}", seed, nil},

	{"default route", shoot(`{nodes: 0.0.0.0/0}`), seed, []string{"error spec.networking.nodes 0.0.0.0/0"}},
	{"no prefix", shoot(`{nodes: 10.250.0.0}`), seed, []string{"error spec.networking.nodes 10.250.0.0"}},
	{"a number", shoot(`{nodes: 10}`), seed, []string{"error spec.networking.nodes 10"}},
	{"FR-22 host bits", shoot(`{nodes: 10.250.2.3/16}`), seed, []string{"warning spec.networking.nodes 10.250.0.0/16"}},
	{"FR-28 link-local among others", shoot(`{ipFamilies: [IPv4, IPv6]}`) + `status: {networking: {nodes: ["fd00:250::/48", 10.250.0.0/16, "fe80::/64"]}}`, seed,
		[]string{"error status.networking.nodes[2] fe80::/64"}},
	{"FR-28 IPv6 in an IPv4 shoot", shoot(`{nodes: "fd00:250::/48"}`), seed, []string{"warning spec.networking.nodes is of a family"}},
	{"one family short", shoot(`{nodes: 10.250.0.0/16, ipFamilies: [IPv4, IPv6]}`) + "status: {networking: {nodes: [10.250.0.0/16]}}", seed,
		[]string{"warning spec.networking.nodes no ipv6 node network is known"}},
	{"one family short before the infrastructure", shoot(`{nodes: 10.250.0.0/16, ipFamilies: [IPv4, IPv6]}`), seed, nil},

	{"seed's pods", shoot(`{nodes: 10.1.128.0/17}`), seed, []string{"error spec.networking.nodes 10.1.128.0/17 overlaps 10.1.0.0/16, the seed's pods"}},
	{"seed's services", shoot(`{nodes: 10.2.0.0/24}`), seed, []string{"error spec.networking.nodes 10.2.0.0/24 overlaps 10.2.0.0/16, the seed's services"}},
	{"seed's nodes", shoot(`{nodes: 172.18.0.0/16}`), seed, []string{"warning spec.networking.nodes 172.18.0.0/16 overlaps 172.18.0.0/24, the seed's nodes"}},
	{"everything private", shoot(`{nodes: 10.0.0.0/8, pods: 100.96.0.0/11, services: 100.64.0.0/13}`), seed, []string{
		"error spec.networking.nodes the seed's services", "error spec.networking.nodes the seed's pods"}},
	{"the second network overlaps", shoot(`{nodes: 10.250.0.0/16}`) + "status: {networking: {nodes: [10.250.0.0/16, 10.1.0.0/24]}}", seed,
		[]string{"error status.networking.nodes[1] 10.1.0.0/24 overlaps 10.1.0.0/16, the seed's pods"}},
	{"one network in both places", shoot(`{nodes: 10.1.0.0/16}`) + "status: {networking: {nodes: [10.1.0.0/16]}}", seed,
		[]string{"error spec.networking.nodes 10.1.0.0/16 overlaps 10.1.0.0/16, the seed's pods"}},
	{"a seed without pods", shoot(`{nodes: 10.250.0.0/16}`), "metadata: {name: x}", []string{"warning spec.networks.pods is not set"}},
	{"a broken seed", shoot(`{nodes: 10.250.0.0/16}`), "spec: {networks: {pods: nonsense}}", []string{"error spec.networks.pods nonsense"}},

	{"own pods", shoot(`{nodes: 10.250.0.0/16, pods: 10.250.128.0/17}`), seed, []string{"error spec.networking.nodes the shoot's own pods"}},
	{"own services, by status", shoot(`{nodes: 10.250.0.0/16}`) + "status: {networking: {services: [10.250.0.0/24]}}", seed,
		[]string{"error spec.networking.nodes the shoot's own services"}},
	{"pods by the seed's default", shoot(`{nodes: 10.3.0.0/24}`), seed, []string{"error spec.networking.nodes get by the seed's default"}},
	{"services by default", shoot(`{nodes: 100.64.0.0/16}`), "", []string{"error spec.networking.nodes get by default"}},

	{"mapped nodes", shoot(`{nodes: 242.0.0.0/16}`), seed, []string{"error spec.networking.nodes which stands for shoot nodes"}},
	{"half of class E", shoot(`{nodes: 240.0.0.0/5}`), seed, []string{
		"error spec.networking.nodes the API server's", "error spec.networking.nodes seed's pods inside", "error spec.networking.nodes shoot nodes",
		"error spec.networking.nodes shoot services", "error spec.networking.nodes shoot pods"}},
	{"the rest of class E", shoot(`{nodes: 250.0.0.0/8}`), seed, []string{"error spec.networking.nodes which is reserved"}},
	{"transfer network", shoot(`{nodes: "fd8f:6d53:b97a::/48", ipFamilies: [IPv6]}`), seed, []string{"error spec.networking.nodes the VPN's transfer network"}},
	{"old transfer network", shoot(`{nodes: 192.168.0.0/16}`), seed, []string{"warning spec.networking.nodes before Gardener v1.104"}},
}

func tree(t interface{ Fatal(...any) }, text string) map[string]any {
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestShoot(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := lint.Shoot(tree(t, c.shoot), tree(t, c.seed))
			if len(got) != len(c.want) {
				t.Fatalf("want %d findings: %q\ngot %d: %+v", len(c.want), c.want, len(got), got)
			}
			for i, want := range c.want {
				severity, rest, _ := strings.Cut(want, " ")
				field, message, _ := strings.Cut(rest, " ")
				f := got[i]
				if string(f.Severity) != severity || f.Field != field || !strings.Contains(f.Message, message) {
					t.Errorf("want %s\ngot %+v", want, f)
				}
			}
		})
	}
}

// TestAmong: which of several Seeds counts, and what is said where none does.
func TestAmong(t *testing.T) {
	const overlaps = "error spec.networking.nodes 10.250.0.0/16 overlaps"
	named := func(name, pods string) string {
		return "metadata: {name: " + name + "}\nspec: {networks: {pods: " + pods + "}}"
	}
	on := func(seed, nodes string) string {
		return "metadata: {name: one}\nspec:\n  seedName: " + seed + "\n  provider: {workers: [{name: a}]}\n  networking: {nodes: " + nodes + "}\n"
	}
	good, bad := named("good", "10.1.0.0/16"), named("bad", "10.250.0.0/16")
	for name, c := range map[string]struct {
		shoot string
		seeds []string
		want  string
	}{
		"the one it names":           {on("bad", "10.250.0.0/16"), []string{good, bad}, overlaps},
		"not the other":              {on("good", "10.250.0.0/16"), []string{good, bad}, ""},
		"the only one, and no name":  {on("\"\"", "10.250.0.0/16"), []string{bad}, overlaps},
		"names another":              {on("third", "10.250.0.0/16"), []string{bad}, "warning spec.seedName is third, and no Seed of that name was given"},
		"names none of several":      {on("third", "10.250.0.0/16"), []string{good, bad}, "warning spec.seedName is third, and no Seed of that name was given"},
		"several, and no name":       {on("\"\"", "10.250.0.0/16"), []string{good, bad}, "warning spec.seedName is not set, and several Seeds were given"},
		"no seeds":                   {on("third", "10.250.0.0/16"), nil, ""},
		"nothing to fence, no name":  {"spec: {provider: {type: local}}", []string{good, bad}, ""},
		"a name that is none at all": {on("7", "10.250.0.0/16"), []string{good, bad}, "warning spec.seedName is not set, and several Seeds were given"},
	} {
		t.Run(name, func(t *testing.T) {
			var seeds []map[string]any
			for _, s := range c.seeds {
				seeds = append(seeds, tree(t, s))
			}
			var got []string
			for _, f := range lint.Among(tree(t, c.shoot), seeds) {
				got = append(got, string(f.Severity)+" "+f.Field+" "+f.Message)
			}
			if all := strings.Join(got, "\n"); len(got) > 1 || c.want == "" && all != "" || !strings.HasPrefix(all, c.want) {
				t.Errorf("want %q\ngot %q", c.want, all)
			}
		})
	}
}

// TestAnyTree: whatever stands where networks should, there is an answer, and it is the same each time.
func TestAnyTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		odd := rapid.SampledFrom([]any{nil, "", "10.1.0.0/16", "x", 7.0, true, []any{}, []any{"10.250.0.0/16", nil, 3.0, "fe80::1%eth0/64"}, map[string]any{"a": "b"}})
		networking := func() any {
			if rapid.Bool().Draw(t, "none") {
				return odd.Draw(t, "instead")
			}
			m := map[string]any{}
			for _, name := range []string{"nodes", "pods", "services", "ipFamilies", "shootDefaults"} {
				m[name] = odd.Draw(t, name)
			}
			return m
		}
		shoot := map[string]any{"metadata": odd.Draw(t, "metadata"), "spec": map[string]any{
			"networking": networking(), "provider": map[string]any{"workers": []any{odd.Draw(t, "worker")}}},
			"status": map[string]any{"networking": networking()}}
		seed := map[string]any{"spec": map[string]any{"networks": networking()}}
		first, second := lint.Shoot(shoot, seed), lint.Shoot(shoot, seed)
		if len(first) != len(second) {
			t.Fatalf("%v\nand then\n%v", first, second)
		}
		for i, f := range first {
			if f != second[i] || f.Message == "" || f.Field == "" || f.Severity != lint.Error && f.Severity != lint.Warning {
				t.Fatalf("finding %+v, then %+v", f, second[i])
			}
		}
	})
}
