package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// clone copies a tree of decoded JSON.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = clone(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	}
	return v
}

// same compares trees of decoded JSON. Decoders differ in what they make of numbers, so those are compared by value.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, same)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	}
	if _, tree := b.(map[string]any); tree {
		return false
	}
	if _, tree := b.([]any); tree {
		return false
	}
	if a == b {
		return true
	}
	x, aNumber := number(a)
	y, bNumber := number(b)
	return aNumber && bNumber && x == y
}

// number reads a number as whichever type a decoder gave it.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case int32:
		return float64(v), true
	case int64:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	return 0, false
}

// field returns an object within another, nil if it is absent. Null is as good as absent, as it is to Kubernetes.
func field(m map[string]any, at, name string) (map[string]any, error) {
	switch v := m[name].(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return v, nil
	default:
		return nil, fmt.Errorf("%s: is %s, want an object", strings.TrimPrefix(at+"."+name, "."), typeName(v))
	}
}

// objects returns the items of a list of objects, nil if it is absent.
func objects(m map[string]any, at, name string) ([]map[string]any, error) {
	if m[name] == nil {
		return nil, nil
	}
	list, ok := m[name].([]any)
	if !ok {
		return nil, fmt.Errorf("%s.%s: is %s, want a list", at, name, typeName(m[name]))
	}
	out := make([]map[string]any, len(list))
	for i, v := range list {
		if out[i], ok = v.(map[string]any); !ok {
			return nil, fmt.Errorf("%s.%s[%d]: is %s, want an object", at, name, i, typeName(v))
		}
	}
	return out, nil
}

// list is the reverse of objects.
func list(all []map[string]any) []any {
	out := make([]any, len(all))
	for i, m := range all {
		out[i] = m
	}
	return out
}

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "a number"
}

// text returns a string, empty if there is none.
func text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

// words returns the strings of a list; what is no string is passed over.
func words(m map[string]any, name string) []string {
	all, _ := m[name].([]any)
	var out []string
	for _, v := range all {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// child returns the object within another, made if it is absent.
func child(m map[string]any, name string) map[string]any {
	if c, ok := m[name].(map[string]any); ok {
		return c
	}
	c := map[string]any{}
	m[name] = c
	return c
}

// named returns the index of the item with that name, -1 if there is none.
func named(all []map[string]any, name string) int {
	return slices.IndexFunc(all, func(m map[string]any) bool { return m["name"] == name })
}
