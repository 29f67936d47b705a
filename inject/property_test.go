package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
	"pgregory.net/rapid"
)

// walk visits every object of a tree, the inner ones first and each time in the same order; a visit may change it.
func walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(v[name], visit)
		}
		visit(v)
	case []any:
		for _, e := range v {
			walk(e, visit)
		}
	}
}

// disturb changes a workload in ways that others may.
func disturb(t *rapid.T, object map[string]any) {
	odd := rapid.SampledFrom([]string{`null`, `"x"`, `7`, `true`, `[]`, `["x"]`, `{}`, `{"name":"y"}`, `[{}]`})
	fields := rapid.SampledFrom([]string{"initContainers", "containers", "volumes", "annotations", "labels", "env", "ports", "securityContext",
		"metadata", "spec", "template", "name", "containerPort", "value", "command", "resources"})
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		field, value, at, n := fields.Draw(t, "field"), odd.Draw(t, "value"), rapid.IntRange(0, 20).Draw(t, "at"), 0
		walk(object, func(m map[string]any) {
			if _, has := m[field]; !has {
				return
			}
			if n++; n != at {
				return
			}
			var v any
			if err := json.Unmarshal([]byte(value), &v); err != nil {
				t.Fatal(err)
			}
			m[field] = v
		})
	}
	if rapid.Bool().Draw(t, "tomorrow") {
		walk(object, func(m map[string]any) { m["fieldOfTomorrow"] = map[string]any{"x": []any{1.5, nil}} })
	}
}

// others returns all that is not to change: the tree without what is ours.
func others(t *rapid.T, object map[string]any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(data, &tree); err != nil {
		t.Fatal(err)
	}
	walk(tree, func(m map[string]any) {
		for _, list := range []string{"initContainers", "containers", "volumes"} {
			items, ok := m[list].([]any)
			if !ok {
				continue
			}
			m[list] = slices.DeleteFunc(items, func(v any) bool {
				c, _ := v.(map[string]any)
				return slices.Contains([]any{"routefence", "routefence-init", "routefence-run", "routefence-token", "routefence-cache", "routefence-nodes"}, c["name"])
			})
		}
		delete(m, inject.MarkKey)
		delete(m, "networking.gardener.cloud/to-runtime-apiserver")
		for name, v := range m {
			// What was absent may be empty now.
			if list, ok := v.([]any); ok && len(list) == 0 || fmt.Sprint(v) == "map[]" || v == nil {
				delete(m, name)
			}
		}
	})
	walk(tree, func(m map[string]any) {
		if fmt.Sprint(m["annotations"]) == "map[]" {
			delete(m, "annotations")
		}
		if fmt.Sprint(m["metadata"]) == "map[]" {
			delete(m, "metadata")
		}
	})
	data, err = json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestAnyWorkload: whatever stands in a workload, Mutate errs or puts the fence first and changes nothing else, once.
func TestAnyWorkload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom(gardener.Objects()).Draw(t, "workload")
		o := with(rapid.SampledFrom([]string{"default", "pair", "legacy", "api", "config map", "tunneled", "pair, api, legacy"}).Draw(t, "form"))
		object := w.Tree()
		disturb(t, object)
		before, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		r, err := inject.Mutate(object, o)
		if after, _ := json.Marshal(object); !bytes.Equal(before, after) {
			t.Fatalf("the argument was changed from\n%s\nto\n%s", before, after)
		}
		if err != nil {
			return
		}
		made, err := json.Marshal(r.Object)
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome == inject.LeftAlone {
			if !bytes.Equal(made, before) {
				t.Fatalf("left alone, and changed from\n%s\nto\n%s", before, made)
			}
			return
		}
		if was, is := others(t, object), others(t, r.Object); !bytes.Equal(was, is) {
			t.Fatalf("changed what is not ours:\n%s\n%s", was, is)
		}
		spec := r.Object["spec"].(map[string]any)
		if r.Object["kind"] != "Pod" {
			spec = spec["template"].(map[string]any)["spec"].(map[string]any)
		}
		first := spec["initContainers"].([]any)[0].(map[string]any)
		if first["name"] != map[inject.Form]string{"": "routefence", inject.Pair: "routefence-init"}[o.Form] {
			t.Fatalf("the first container is %v", first["name"])
		}
		second, err := inject.Mutate(r.Object, o)
		if err != nil {
			t.Fatalf("a second run: %v", err)
		}
		if again, _ := json.Marshal(second.Object); !bytes.Equal(again, made) || second.Outcome != inject.Unchanged {
			t.Fatalf("a second run (%s) changes\n%s\nto\n%s", second.Outcome, made, again)
		}
	})
}

// FuzzMutate: no JSON is too odd, and what has the fence is left as it is.
func FuzzMutate(f *testing.F) {
	for _, w := range gardener.Objects() {
		f.Add(marshal(f, w.Tree()))
	}
	f.Add(marshal(f, annotated("vpn-seed-server", map[string]any{"routefence.io/resources": `{"limits":{"cpu":"1e3"}}`})))
	f.Fuzz(func(t *testing.T, data []byte) {
		var object map[string]any
		if json.Unmarshal(data, &object) != nil {
			return
		}
		for _, o := range []inject.Options{options, with("pair, api, legacy")} {
			r, err := inject.Mutate(object, o)
			if err != nil {
				continue
			}
			second, err := inject.Mutate(r.Object, o)
			if err != nil || second.Outcome == inject.Injected || !bytes.Equal(marshal(t, second.Object), marshal(t, r.Object)) {
				t.Fatalf("%s, then %s (%v):\n%s\n%s", r.Outcome, second.Outcome, err, marshal(t, r.Object), marshal(t, second.Object))
			}
		}
	})
}
