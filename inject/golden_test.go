package inject_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/aymanbagabas/go-udiff"
	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what is found to testdata")

// options are those of most tests: what a webhook passes that knows the namespace's Cluster.
var options = inject.Options{Image: "registry.example/routefence:v1", Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}

func mutate(t *testing.T, object map[string]any, o inject.Options) inject.Result {
	t.Helper()
	r, err := inject.Mutate(object, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func encode(t *testing.T, object map[string]any) string {
	t.Helper()
	out, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := udiff.Unified("want", "got", string(want), got); d != "" {
		t.Errorf("not as in %s (if that is right: go test ./inject -update):\n%s", path, d)
	}
}

// TestGardener: what is done to each of Gardener's workloads, as a difference; a warning, or the reason, on top.
func TestGardener(t *testing.T) {
	for _, o := range gardener.Objects() {
		t.Run(o.Name, func(t *testing.T) {
			r := mutate(t, o.Tree(), options)
			if fenced := r.Outcome == inject.Injected; fenced != o.Fenced {
				t.Fatalf("%s (%s): %s", r.Outcome, r.Reason, r.Message)
			}
			text := "outcome: " + string(r.Outcome) + "\n"
			if r.Reason != "" {
				text += "reason: " + string(r.Reason) + "\n"
			}
			for _, w := range r.Warnings {
				text += "warning: " + w + "\n"
			}
			golden(t, o.Name+".diff", text+udiff.Unified("before", "after", encode(t, o.Tree()), encode(t, r.Object)))
		})
	}
}
