package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/test/gardener"
)

// outcome is what the program did.
type outcome struct {
	out, errs string
	code      int
}

func runWith(stdin string, args ...string) outcome {
	var out, errs bytes.Buffer
	code := runTo(&out, &errs, stdin, args...)
	return outcome{out.String(), errs.String(), code}
}

func injected(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	r := runWith(stdin, append([]string{"inject", "-f", "-", "--image=x:1"}, args...)...)
	if r.code != command.OK {
		t.Fatalf("exit code %d: %s", r.code, r.errs)
	}
	return r
}

// corpus is a stream of all workloads.
func corpus() string {
	var all []string
	for _, o := range gardener.Objects() {
		all = append(all, string(o.YAML))
	}
	return strings.Join(all, "---\n")
}

// TestInjectAddsLinesOnly: of ten documents those to be fenced get lines, and nothing else changes.
func TestInjectAddsLinesOnly(t *testing.T) {
	before := corpus()
	after := injected(t, before, "--node-networks=10.0.0.0/16")
	rest := strings.SplitAfter(after.out, "\n")
	for _, line := range strings.SplitAfter(before, "\n") {
		i := 0
		for i < len(rest) && rest[i] != line {
			i++
		}
		if i == len(rest) {
			t.Fatalf("line is gone: %q", line)
		}
		rest = rest[i+1:]
	}
	fenced := 0
	for _, o := range gardener.Objects() {
		if o.Fenced {
			fenced++
		} else if !strings.Contains(after.out, string(o.YAML)) {
			t.Errorf("%s is not as it was", o.Name)
		}
	}
	if got := strings.Count(after.out, "image: x:1\n"); got != fenced {
		t.Errorf("%d fences, want %d", got, fenced)
	}
	if want := ": not fenced: Deployment kube-apiserver uses the node's network"; !strings.Contains(after.errs, want) {
		t.Errorf("no warning for hostNetwork: %s", after.errs)
	}
	again := injected(t, after.out, "--node-networks=10.0.0.0/16")
	if again.out != after.out {
		t.Error("a second run changes something")
	}
	if d := injected(t, after.out, "--node-networks=10.0.0.0/16", "--diff"); d.out != "" {
		t.Errorf("a second run has a difference:\n%s", d.out)
	}
}

func TestInjectDiff(t *testing.T) {
	d := injected(t, corpus(), "--node-networks=10.0.0.0/16", "--diff").out
	if !strings.HasPrefix(d, "--- -\n+++ - (fenced)\n@@ ") {
		t.Errorf("no unified diff: %.200s", d)
	}
	for line := range strings.Lines(d) {
		if strings.HasPrefix(line, "-") && !strings.HasPrefix(line, "---") {
			t.Errorf("the difference removes a line: %s", line)
		}
	}
}

// TestInjectList: items of a List, in YAML and as "kubectl get -o json" prints them.
func TestInjectList(t *testing.T) {
	list := map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{
		gardener.Get("etcd-main").Tree(), gardener.Get("vpn-seed-server").Tree(), gardener.Get("vpn-seed-server-ha").Tree()}}
	data, err := json.MarshalIndent(list, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	after := injected(t, string(data)+"\n").out
	var got struct {
		Items []struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct{ InitContainers []struct{ Name string } }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(after), &got); err != nil {
		t.Fatalf("%v in\n%s", err, after)
	}
	for i, want := range []string{"", "routefence", "routefence"} {
		if inits := got.Items[i].Spec.Template.Spec.InitContainers; want != "" && inits[0].Name != want || want == "" && inits != nil {
			t.Errorf("item %d has init containers %v", i, inits)
		}
	}
	if !strings.HasSuffix(after, "\n    ],\n    \"kind\": \"List\"\n}\n") {
		t.Errorf("the indentation is not as it was:\n%s", after[len(after)-100:])
	}
}

// TestInjectTypedList: the API server's own lists, whose items have no kind, get nothing but the fence.
func TestInjectTypedList(t *testing.T) {
	deployment := gardener.Get("vpn-seed-server").Tree()
	var want map[string]any
	if err := json.Unmarshal([]byte(injected(t, string(encoded(t, deployment))).out), &want); err != nil {
		t.Fatal(err)
	}
	template := deployment["spec"].(map[string]any)["template"].(map[string]any)
	for kind, apiVersion := range map[string]string{"DeploymentList": "apps/v1", "StatefulSetList": "apps/v1", "PodList": "v1", "DaemonSetList": "apps/v1", "List": "v1"} {
		item := map[string]any{"metadata": deployment["metadata"], "spec": deployment["spec"]}
		if kind == "PodList" {
			item = map[string]any{"metadata": template["metadata"], "spec": template["spec"]}
		}
		list := map[string]any{"kind": kind, "apiVersion": apiVersion, "items": []any{item}}
		r := injected(t, string(encoded(t, list)))
		var got struct{ Items []map[string]any }
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatal(err)
		}
		if got.Items[0]["kind"] != nil || got.Items[0]["apiVersion"] != nil {
			t.Errorf("%s: the item has a kind now: %.200s", kind, r.out)
		}
		fenced := strings.Contains(r.out, `"image":"x:1"`)
		if can := kind != "DaemonSetList" && kind != "List"; fenced != can || strings.Contains(r.errs, "nothing is fenced") == can {
			t.Errorf("%s: fenced %v: %s", kind, fenced, r.errs)
		}
		if kind == "DeploymentList" && !reflect.DeepEqual(got.Items[0]["spec"], want["spec"]) {
			t.Errorf("%s: not what a Deployment by itself gets:\n%v\n%v", kind, got.Items[0]["spec"], want["spec"])
		}
	}
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestInjectSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	for path, text := range map[string]string{a: "kind: A", b: "kind: B\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := runWith("", "inject", "-f", a, "-f", b, "--image=x")
	if r.out != "kind: A\n---\nkind: B\n" {
		t.Errorf("got %q", r.out)
	}
	for _, want := range []string{"note: nothing is fenced:", a + ": document 1: A is neither", "(OtherKind)"} {
		if !strings.Contains(r.errs, want) {
			t.Errorf("standard error lacks %q: %s", want, r.errs)
		}
	}
}

// TestInjectTellsOfRewriting: anchors cannot be changed in place.
func TestInjectTellsOfRewriting(t *testing.T) {
	server := "kind: ConfigMap\n---\n" + string(gardener.Get("vpn-seed-server").YAML) + "status:\n  shared: *l\n"
	server = strings.Replace(server, "    metadata:\n      labels:\n", "    metadata: &l\n      labels:\n", 1)
	r := injected(t, server)
	if !strings.Contains(r.errs, "warning: -: document 2: could not be changed in place") || !strings.HasPrefix(r.out, "kind: ConfigMap\n---\napiVersion") {
		t.Errorf("standard error: %s\n%.300s", r.errs, r.out)
	}
}

// runTo runs the program as main does, on streams of the test's.
func runTo(out, errs io.Writer, stdin string, args ...string) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(out)
	root.SetErr(errs)
	return command.Run(context.Background(), root)
}

// mistakes are command lines with the exit code and what must be said.
var mistakes = []struct {
	stdin string
	args  string
	code  int
	want  string
}{
	{"", "", command.Mistake, ""},
	{"", "frobnicate", command.Mistake, `unknown command "frobnicate"`},
	{"", "inject -f -", command.Mistake, "--image: is not given"},
	{"", "inject --image=x", command.Mistake, "-f: is not given"},
	{"", "inject --image=x -f - stray", command.Mistake, "stray"},
	{"", "inject --image=x -f - --form=odd", command.Mistake, "--form=odd: want one of native, pair"},
	{"", "inject --image=x -f - --firewall=ufw", command.Mistake, "--firewall=ufw: want one of"},
	{"", "inject --image=x -f - --log-level=loud", command.Mistake, "--log-level=loud: want one of"},
	{"", "inject --image=x -f - --ready-when=never", command.Mistake, "--ready-when=never: want one of"},
	{"", "inject --image=x -f - --image-pull-policy=no", command.Mistake, "--image-pull-policy=no: want one of"},
	{"", "inject --image=x -f - --source=configmap/", command.Mistake, "--source=configmap/: want configmap/NAME or"},
	{"", "inject --image=x -f - --memory-limit=much", command.Mistake, "--memory-limit=much: is not a quantity"},
	{"", "inject --image=x -f - --memory-limit=1Mi", command.Mistake, "--memory-request=32Mi: is more than memory-limit=1Mi"},
	{"", "inject --image=x -f - --node-networks=10.0.0.0/33", command.Mistake, "--node-networks:"},
	{"", "inject --image=x -f - --node-networks=,", command.Mistake, "--node-networks=,: names no network"},
	{"", "inject --image=x -f -", command.Failed, "-: holds no object"},
	{"a: 1\n---\nb: {\n", "inject --image=x -f -", command.Failed, "-: document 2 (from line 2 on)"},
	{"apiVersion: apps/v1\nkind: Deployment\nmetadata: {labels: {routefence.io/inject: perhaps}}\nspec: {template: {spec: {}}}\n", "inject --image=x -f -",
		command.Failed, `-: document 1: Deployment : labels[routefence.io/inject]=perhaps: want "true" or "false"`},
	{"kind: List\nitems: [1]\n", "inject --image=x -f -", command.Failed, "items[0]: is no object"},
	{"", "inject --image=x -f /nowhere", command.Failed, "/nowhere"},

	{"", "lint", command.Mistake, "-f: is not given"},
	{"", "lint -f - -o xml", command.Mistake, "--output=xml: want one of table, json"},
	{"kind: Seed\n", "lint -f -", command.Mistake, "holds no Shoot, only Seeds"},
	{"kind: Pod\n", "lint -f -", command.Mistake, "-: holds no Shoot, Seed or Cluster"},
	{"{", "lint -f -", command.Mistake, "-: document 1"},
	{"", "version -o xml", command.Mistake, "--output=xml"},
}

func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		r := runWith(m.stdin, strings.Fields(m.args)...)
		if r.code != m.code || !strings.Contains(r.errs, m.want) || m.want != "" && (r.out != "" || strings.Count(r.errs, "\n") != 1) {
			t.Errorf("%s: exit code %d, want %d; standard output %q; standard error %q, want %q", m.args, r.code, m.code, r.out, r.errs, m.want)
		}
	}
}
