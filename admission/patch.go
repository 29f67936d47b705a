package admission

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value *any   `json:"value,omitempty"`
}

// patch returns the steps from one JSON object to another, in a fixed order. Lists that differ are replaced whole: the order of
// containers matters, and steps for single items would need the list not to change meanwhile anyway.
func patch(from, to map[string]any) ([]byte, error) {
	steps := difference(nil, "", from, to)
	if len(steps) == 0 {
		return nil, nil
	}
	return json.Marshal(steps)
}

func difference(steps []operation, at string, from, to map[string]any) []operation {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		path := at + "/" + escape(name)
		old := from[name]
		next, kept := to[name]
		if !kept {
			steps = append(steps, operation{Op: "remove", Path: path})
			continue
		}
		oldObject, one := old.(map[string]any)
		nextObject, two := next.(map[string]any)
		switch {
		case one && two:
			steps = difference(steps, path, oldObject, nextObject)
		case !reflect.DeepEqual(old, next):
			steps = append(steps, operation{"replace", path, &next})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if _, old := from[name]; !old {
			next := to[name]
			steps = append(steps, operation{"add", at + "/" + escape(name), &next})
		}
	}
	return steps
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func escape(name string) string { return escaper.Replace(name) }
