package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value *any   `json:"value,omitempty"`
}

// patch returns the steps from one JSON object to another, in a fixed order. Items that are new in a list are put in where they are to
// be; a list that differs otherwise is replaced whole.
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
		steps = change(steps, path, old, next)
	}
	for _, name := range slices.Sorted(maps.Keys(to)) {
		if _, old := from[name]; !old {
			next := to[name]
			steps = append(steps, operation{"add", at + "/" + escape(name), &next})
		}
	}
	return steps
}

// change returns the steps from one value to another.
func change(steps []operation, at string, from, to any) []operation {
	switch from := from.(type) {
	case map[string]any:
		if to, ok := to.(map[string]any); ok {
			return difference(steps, at, from, to)
		}
	case []any:
		if to, ok := to.([]any); ok && len(to) > len(from) {
			if start, ok := inserted(from, to); ok {
				for i := start; i < start+len(to)-len(from); i++ {
					steps = append(steps, operation{"add", at + "/" + strconv.Itoa(i), &to[i]})
				}
				return steps
			}
		}
	}
	if !equal(from, to) {
		steps = append(steps, operation{"replace", at, &to})
	}
	return steps
}

// inserted returns where one row of items was put into a list to make a longer one of it, if that is all that was done.
func inserted(from, to []any) (start int, all bool) {
	for start < len(from) && equal(from[start], to[start]) {
		start++
	}
	return start, slices.EqualFunc(from[start:], to[start+len(to)-len(from):], equal)
}

// equal is reflect.DeepEqual for decoded JSON, in a third of the time.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, v := range a {
			if w, there := b[name]; !there || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	}
	switch b.(type) {
	case map[string]any, []any:
		return false // cannot be compared
	}
	return a == b
}

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

func escape(name string) string { return escaper.Replace(name) }
