package shoot_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/shoot"
)

func read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func asJSON(t testing.TB, text string) string {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func texts(prefixes []netip.Prefix) (out []string) {
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

const (
	shootHead = "apiVersion: core.gardener.cloud/v1beta1\nkind: Shoot\n"
	infraHead = "apiVersion: extensions.gardener.cloud/v1alpha1\nkind: Infrastructure\n"
)

func TestDecode(t *testing.T) {
	one, cluster, infra := read(t, "shoot.yaml"), read(t, "cluster.yaml"), read(t, "infrastructure.yaml")
	for _, c := range []struct {
		name, in, kind string
		want           string
		problems       []string
		warnings       []string
	}{
		{"Shoot", one, "Shoot", "10.250.0.0/16 10.251.0.0/16 fd00:250::/48", nil, nil},
		{"Shoot as JSON", asJSON(t, one), "Shoot", "10.250.0.0/16 10.251.0.0/16 fd00:250::/48", nil, nil},
		{"Cluster", cluster, "Cluster", "10.250.0.0/16 10.251.0.0/16", nil, nil},
		{"Cluster as JSON", asJSON(t, cluster), "Cluster", "10.250.0.0/16 10.251.0.0/16", nil, nil},
		{"Infrastructure", infra, "Infrastructure", "10.250.0.0/16 10.251.0.0/16", nil, nil},
		{"BOM and CRLF", "\ufeff" + strings.ReplaceAll(one, "\n", "\r\n"), "Shoot",
			"10.250.0.0/16 10.251.0.0/16 fd00:250::/48", nil, nil},
		{"documents", "# all of it\n---\n" + infra + "---\n---\napiVersion: v1\nkind: ConfigMap\n---\n" + one, "Infrastructure+Shoot",
			"10.250.0.0/16 10.251.0.0/16 fd00:250::/48", nil, nil},
		{"JSON documents", asJSON(t, infra) + "\n" + asJSON(t, cluster), "Infrastructure+Cluster", "10.250.0.0/16 10.251.0.0/16", nil, nil},
		{"List", "apiVersion: v1\nkind: List\nitems:\n- {kind: Secret}\n- kind: Shoot\n  spec: {networking: {nodes: 10.1.0.0/16}}\n" +
			"- kind: Shoot\n  spec: {networking: {nodes: 10.2.0.0/16}}\n", "Shoot", "10.1.0.0/16 10.2.0.0/16", nil, nil},
		{"typed list as the API returns it",
			`{"kind":"ShootList","apiVersion":"core.gardener.cloud/v1beta1","items":[{"spec":{"networking":{"nodes":"10.1.0.0/16"}}}]}`,
			"Shoot", "10.1.0.0/16", nil, nil},
		{"spec as list, status as string", shootHead + "spec: {networking: {nodes: [10.1.0.0/16]}}\nstatus: {networking: {nodes: 10.2.0.0/16}}\n",
			"Shoot", "10.1.0.0/16 10.2.0.0/16", nil, nil},
		{"spec missing (FR-41)", shootHead + "spec: {networking: {nodes: null}}\nstatus: {networking: {nodes: [10.1.0.0/16, 10.2.0.0/16]}}\n",
			"Shoot", "10.1.0.0/16 10.2.0.0/16", nil, nil},
		{"spec A, status A and IPv6 (FR-41)", shootHead + "spec: {networking: {nodes: 10.1.0.0/16}}\nstatus: {networking: {nodes: [10.1.0.0/16, 'fd00::/48']}}\n",
			"Shoot", "10.1.0.0/16 fd00::/48", nil, nil},
		{"unknown version and fields (FR-42)", `{"apiVersion":"core.gardener.cloud/v2","kind":"Shoot","news":[1],"metadata":7,
			"spec":{"networking":{"nodes":"10.1.0.0/16","type":{}},"provider":{"providerConfig":{"kind":"Huh"}}}}`,
			"Shoot", "10.1.0.0/16", nil, []string{"core.gardener.cloud/v2"}},
		{"bad items", shootHead + "status: {networking: {nodes: [10.1.0.0/16, 10.300.0.0/16, 'fe80::/64', 7, {a: b}, null, '']}}\n", "Shoot", "10.1.0.0/16",
			[]string{`status.networking.nodes[1] "10.300.0.0/16": not an IP network`, `status.networking.nodes[2] "fe80::/64": `,
				"status.networking.nodes[3]: is the number 7, want", "status.networking.nodes[4]: is an object, want"}, nil},
		{"wrong types", shootHead + "spec: {networking: [10.9.0.0/16]}\nstatus: {networking: {nodes: 10.1.0.0/16}}\n", "Shoot", "10.1.0.0/16",
			[]string{"spec.networking: is a list, want an object"}, nil},
		{"wrong type in a Cluster", "kind: Cluster\nspec: {shoot: {spec: 1, status: {networking: {nodes: [10.1.2.3/16]}}}}\n", "Cluster", "10.1.0.0/16",
			[]string{"spec.shoot.spec: is the number 1, want an object"},
			[]string{"spec.shoot.status.networking.nodes[0] 10.1.2.3/16 has host bits set, read as 10.1.0.0/16"}},
		{"one object of two names nothing", "kind: Shoot\nspec: {networking: {nodes: 10.1.0.0/16}}\n---\nkind: Cluster\nspec: {shoot: null}\n",
			"Shoot+Cluster", "10.1.0.0/16", nil, []string{"spec.shoot is null"}},
		{"repeated key", shootHead + "spec: {networking: {nodes: 10.1.0.0/16}}\nspec: {networking: {nodes: 10.2.0.0/16}}\n", "Shoot", "10.2.0.0/16", nil, nil},
		{"one network", "10.1.0.0/16", "list", "10.1.0.0/16", nil, nil},
		{"lines", "# nodes: all\n10.1.0.0/16\r\n\tfd00:250::/48 # second: one\n", "list", "10.1.0.0/16 fd00:250::/48", nil, nil},
		{"FR-25", " 10.250.0.0/16, ,10.251.0.0/16;\r\n10.250.0.0/16,10.250.128.0/17,\t\u00a0fd00:250::/48,", "list",
			"10.250.0.0/16 10.251.0.0/16 10.250.128.0/17 fd00:250::/48", nil, nil},
		{"bad line", "10.1.0.0/16\nfd00:250::\n10.2.0.0/16", "list", "10.1.0.0/16 10.2.0.0/16", []string{`"fd00:250::": has no prefix length`}, nil},
		{"first line bad", "fd00:250::\n10.2.0.0/16", "list", "10.2.0.0/16", []string{`"fd00:250::"`}, nil},
		{"sequence", "---\n- 10.1.0.0/16\n- fd00:250::/48\n- 10.300.0.0/16\n- 7\n", "list", "10.1.0.0/16 fd00:250::/48",
			[]string{`[2] "10.300.0.0/16"`, "[3]: is the number 7"}, nil},
		{"JSON list", `["10.1.0.0/16", "fd00:250::/48"]`, "list", "10.1.0.0/16 fd00:250::/48", nil, nil},
		{"quoted", `"10.1.0.0/16,10.2.0.0/16"`, "list", "10.1.0.0/16 10.2.0.0/16", nil, nil},
		{"literal", "|\n  10.1.0.0/16\n  10.2.0.0/16\n", "list", "10.1.0.0/16 10.2.0.0/16", nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := shoot.Decode([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if have := strings.Join(texts(got.Networks), " "); have != c.want || got.Kind != c.kind {
				t.Errorf("got %s: %s, want %s: %s", got.Kind, have, c.kind, c.want)
			}
			var problems []string
			for _, err := range got.Problems {
				problems = append(problems, err.Error())
			}
			contain(t, "problems", problems, c.problems)
			contain(t, "warnings", got.Warnings, c.warnings)
		})
	}
}

func contain(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.EqualFunc(got, want, strings.Contains) {
		t.Errorf("%s %q, want %q", what, got, want)
	}
}

func TestDecodeRefuses(t *testing.T) {
	one := read(t, "shoot.yaml")
	for _, c := range []struct{ name, in, why string }{
		{"nothing", "", "empty"},
		{"blanks", " \r\n\t\ufeff\n", "empty"},
		{"comments", "# 10.1.0.0/16\n  # kind: Shoot\n", "empty"},
		{"an empty document", "---\n...\n", "empty"},
		{"null", "---\nnull\n", "empty"},
		{"separators", ",;\n", "empty"},
		{"another kind", "apiVersion: v1\nkind: ConfigMap\n", "no Shoot, Cluster or Infrastructure of Gardener, but v1 ConfigMap"},
		{"another Cluster", "apiVersion: cluster.x-k8s.io/v1beta1\nkind: Cluster\nspec: {shoot: {spec: {networking: {nodes: 10.1.0.0/16}}}}\n",
			"cluster.x-k8s.io/v1beta1 Cluster"},
		{"no kind", "spec: {networking: {nodes: 10.1.0.0/16}}\n", "an object without kind"},
		{"an empty list", "kind: List\nitems: []\n", "an empty list"},
		{"items of a wrong type", "kind: List\nitems: 7\n", "items: is the number 7, want a list"},
		{"no nodes (gardener#9604)", shootHead + "metadata: {name: one}\nspec: {networking: {pods: 10.9.0.0/16}}\n",
			"Shoot one names no node network: looked at spec.networking.nodes and status.networking.nodes"},
		{"empty nodes", shootHead + "spec: {networking: {nodes: ''}}\nstatus: {networking: {nodes: []}}\n", "names no node network"},
		{"no status", infraHead, "looked at status.nodesCIDR and status.networking.nodes"},
		{"a Cluster without nodes", "kind: Cluster\nmetadata: {name: a}\nspec: {shoot: {}}\n", "Cluster a names no node network: looked at spec.shoot.spec"},
		{"a Cluster with null", "kind: Cluster\nmetadata: {name: a}\nspec: {shoot: null}\n", "Cluster a: spec.shoot is null"},
		{"a Cluster with a text", "kind: Cluster\nspec: {shoot: hello}\n", "spec.shoot: is a text, want an object"},
		{"bad items only", shootHead + "spec: {networking: {nodes: 0.0.0.0/0}}\n", `spec.networking.nodes "0.0.0.0/0": `},
		{"bad list", "10.300.0.0/16, fe80::/64", `"10.300.0.0/16"`},
		{"prose", "the quick brown fox", `"the"`},
		{"a number", "---\n7", "is the number 7"},
		{"a cut object", one[:strings.Index(one, "100.104")-9], "neither YAML, JSON nor a list"},
		{"cut JSON", asJSON(t, one)[:500], "neither YAML, JSON nor a list"},
		{"tabs", "kind: Shoot\n\tspec: 10.1.0.0/16\n", "neither YAML, JSON nor a list"},
		{"an object with tabs is no list", "kind:\tShoot\n\tspec:\t10.1.0.0/16\n", "neither YAML, JSON nor a list"},
		{"too large", strings.Repeat("10.1.0.0/16\n", shoot.MaxSize/12+1), "8388608 bytes"},
	} {
		got, err := shoot.Decode([]byte(c.in))
		if err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: got %v, %v, want an error with %q", c.name, got.Networks, err, c.why)
		}
	}
}

// The bounds are for a hang, not for speed: without a limit these take minutes and gigabytes.
func TestDecodeBoundsItsWork(t *testing.T) {
	bomb := "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
	for _, level := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		before := string(level[0] - 1)
		bomb += "a" + level + ": &a" + level + " [" + strings.Repeat("*a"+before+",", 8) + "*a" + before + "]\n"
	}
	for name, in := range map[string]string{
		"alias bomb":  bomb + shootHead + "spec: {networking: {nodes: *a9}}\n",
		"deep flow":   strings.Repeat("[", 1<<20),
		"deep JSON":   strings.Repeat(`{"a":`, 1<<18),
		"deep block":  "a:\n" + strings.Repeat("- ", 1<<17),
		"junk list":   strings.Repeat("x ", 1<<17),
		"wide object": shootHead + strings.Repeat("k: v\n", 1<<13),
	} {
		started := time.Now()
		got, err := shoot.Decode([]byte(in))
		if err == nil || len(err.Error()) > 20_000 {
			t.Errorf("%s: got %v, an error of %d bytes", name, got.Networks, len(err.Error()))
		}
		if took := time.Since(started); took > 30*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// Each object costs the same, however many came before it.
func TestManyObjects(t *testing.T) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, `{"kind":"Shoot","metadata":{"name":"s%d"},"spec":{"networking":{"nodes":"10.%d.%d.0/24"}}}`+"\n", i, i>>8, i&255)
	}
	all := decode(t, text.String())
	if got, err := shoot.Accept(all, all); err != nil || len(got.Networks) != 5000 || len(got.Fields) != 5000 {
		t.Errorf("%d networks of %d fields, %v", len(got.Networks), len(got.Fields), err)
	}
}

// A later source feeds single objects as the API server sends them.
func TestDecodeRawObject(t *testing.T) {
	raw := json.RawMessage(asJSON(t, read(t, "cluster.yaml")))
	got, err := shoot.Decode(raw)
	want := []shoot.Field{
		{Object: "Cluster shoot--dev--one", Path: "spec.shoot.spec.networking.nodes"},
		{Object: "Cluster shoot--dev--one", Path: "spec.shoot.status.networking.nodes"},
	}
	if diff := cmp.Diff(want, got.Fields); diff != "" || err != nil || got.Truncated {
		t.Errorf("fields (-want +got):\n%s%v, truncated %v", diff, err, got.Truncated)
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"shoot.yaml", "cluster.yaml", "infrastructure.yaml"} {
		f.Add([]byte(read(f, name)))
		f.Add([]byte(asJSON(f, read(f, name))))
	}
	f.Add([]byte("10.1.0.0/16, 10.2.0.0/16 # x\n"))
	f.Add([]byte("- 10.1.0.0/16\n- &a [*a]\n"))
	f.Add([]byte("kind: List\nitems: [{kind: Cluster, spec: {shoot: null}}, {<<: {kind: Shoot}, spec: {networking: {nodes: [7]}}}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := shoot.Decode(data)
		if (err == nil) != (len(r.Networks) > 0) {
			t.Fatalf("%d networks and %v", len(r.Networks), err)
		}
		for i, p := range r.Networks {
			again, warning, err := policy.ParsePrefix(p.String())
			if again != p || warning != "" || err != nil || slices.Contains(r.Networks[:i], p) {
				t.Fatalf("%v is not canonical or twice in %v", p, r.Networks)
			}
		}
		if err == nil && (r.Kind == "" || len(r.Fields) == 0) {
			t.Fatalf("no kind or field: %+v", r)
		}
	})
}
