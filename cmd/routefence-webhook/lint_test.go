package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/routefence/routefence/cmd/internal/command"
)

const shoots = `kind: Shoot
metadata: {name: good, namespace: garden-dev}
spec: {seedName: one, provider: {workers: [{}]}, networking: {nodes: 10.250.0.0/16}}
---
kind: Shoot
metadata: {name: bad, namespace: garden-dev}
spec: {seedName: two, provider: {workers: [{}]}, networking: {nodes: 10.250.0.0/16}}
---
kind: Seed
metadata: {name: one}
spec: {networks: {pods: 10.1.0.0/16, services: 10.2.0.0/16}}
---
kind: Seed
metadata: {name: two}
spec: {networks: {pods: 10.250.0.0/17, services: 10.2.0.0/16}}
---
kind: ConfigMap
`

func TestLint(t *testing.T) {
	r := runWith(shoots, "lint", "-f", "-")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != command.Failed || r.errs != "" || len(lines) != 2 || !strings.HasPrefix(lines[0], "SEVERITY   OBJECT") {
		t.Fatalf("exit code %d, standard error %q\n%s", r.code, r.errs, r.out)
	}
	if want := "error      Shoot garden-dev/bad   spec.networking.nodes   10.250.0.0/16 overlaps 10.250.0.0/17, the seed's pods:"; !strings.HasPrefix(lines[1], want) {
		t.Errorf("want %s\ngot  %s", want, lines[1])
	}

	var findings []map[string]string
	r = runWith(shoots, "lint", "-f", "-", "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &findings); err != nil || len(findings) != 1 || findings[0]["severity"] != "error" || r.code != command.Failed {
		t.Errorf("exit code %d, %v: %s", r.code, err, r.out)
	}
}

// TestLintWithoutItsSeed: what was checked against no seed does not pass for what was, and is no error either.
func TestLintWithoutItsSeed(t *testing.T) {
	for _, seedName := range []string{"three", `""`} {
		text := strings.ReplaceAll(strings.ReplaceAll(shoots, "seedName: one", "seedName: "+seedName), "seedName: two", "seedName: "+seedName)
		r := runWith(text, "lint", "-f", "-")
		if r.code != command.OK || strings.Count(r.out, "not checked against the networks of its seed") != 2 {
			t.Errorf("seedName %s: exit code %d: %s%s", seedName, r.code, r.out, r.errs)
		}
	}
}

// TestLintTypedLists: the API server's own lists, whose items have no kind.
func TestLintTypedLists(t *testing.T) {
	const shoot = `{"metadata": {"name": "one"}, "spec": {"provider": {"workers": [{}]}, "networking": {"nodes": "10.250.0.0/16"}}}`
	const seed = `{"metadata": {"name": "s"}, "spec": {"networks": {"pods": "10.250.0.0/16"}}}`
	for name, files := range map[string]string{
		"Shoots and Seeds": `{"kind": "ShootList", "items": [` + shoot + `]}{"kind": "SeedList", "items": [` + seed + `]}`,
		"Clusters":         `{"kind": "ClusterList", "items": [{"spec": {"shoot": ` + shoot + `, "seed": ` + seed + `}}]}`,
	} {
		if r := runWith(files, "lint", "-f", "-"); r.code != command.Failed || !strings.Contains(r.out, "overlaps 10.250.0.0/16, the seed's pods") {
			t.Errorf("%s: exit code %d, %s%s", name, r.code, r.out, r.errs)
		}
	}
}

// TestLintWarnings: a warning is no failure, and a Cluster brings its Seed along.
func TestLintWarnings(t *testing.T) {
	cluster := `{"kind": "ClusterList", "items": [{"kind": "Cluster", "spec": {
		"shoot": {"metadata": {"name": "one"}, "spec": {"provider": {"workers": [{}]}, "networking": {"nodes": "10.250.0.0/16"}}},
		"seed": {"spec": {"networks": {"nodes": "10.250.0.0/16", "pods": "10.1.0.0/16"}}}}}]}`
	r := runWith(cluster, "lint", "-f", "-")
	if r.code != command.OK || !strings.Contains(r.out, "warning    Shoot one   spec.networking.nodes") {
		t.Errorf("exit code %d: %s", r.code, r.out)
	}
	for format, want := range map[string]string{"table": "no findings\n", "json": "[]\n"} {
		if r := runWith(strings.Replace(cluster, `"nodes": "10.250.0.0/16", "pods"`, `"pods"`, 1), "lint", "-f", "-", "-o", format); r.code != command.OK || r.out != want {
			t.Errorf("%s: exit code %d: %q", format, r.code, r.out)
		}
	}
}
