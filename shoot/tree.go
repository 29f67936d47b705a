package shoot

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v2"
)

// ordered is one YAML document, with the keys of its mappings in their order; shape needs that.
type ordered struct{ value any }

// UnmarshalYAML decodes a mapping with its order and all else as it comes.
func (o *ordered) UnmarshalYAML(unmarshal func(any) error) error {
	var mapping yaml.MapSlice
	if err := unmarshal(&mapping); err == nil && mapping != nil {
		o.value = mapping
		return nil
	}
	return unmarshal(&o.value)
}

// The trees that JSON and YAML decode into differ in the type of their mappings only. Nothing here decodes into structs:
// one field of an unforeseen type would fail the whole object.

// lookUp returns the value at a path of keys, or nil where the path ends early. The error names the part of the path that
// should have been a mapping and is not.
func lookUp(tree any, path string) (any, error) {
	keys := strings.Split(path, ".")
	for i, k := range keys {
		switch m := tree.(type) {
		case nil:
			return nil, nil
		case map[string]any:
			tree = m[k]
		case map[any]any:
			tree = m[k]
		case yaml.MapSlice:
			tree = lastOf(m, k)
		default:
			return nil, fmt.Errorf("%s: %s, want an object", strings.Join(keys[:i], "."), describe(tree))
		}
	}
	return tree, nil
}

// lastOf returns the value of a key. The last one counts if a key is repeated, as it does for kubectl.
func lastOf(m yaml.MapSlice, key string) any {
	for _, item := range slices.Backward(m) {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

// text returns the string at a path, or "".
func text(tree any, path string) string {
	v, _ := lookUp(tree, path)
	s, _ := v.(string)
	return s
}

func isMapping(v any) bool {
	switch v.(type) {
	case map[string]any, map[any]any, yaml.MapSlice:
		return true
	}
	return false
}

// identity names an object in messages and in Field.
func identity(o any, kind string) string {
	name, namespace := text(o, "metadata.name"), text(o, "metadata.namespace")
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

// describe says what a value is to people who know YAML, not Go.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "is null"
	case string:
		return "is a text"
	case bool:
		return fmt.Sprintf("is %v", v)
	case []any:
		return "is a list"
	case map[string]any, map[any]any, yaml.MapSlice:
		return "is an object"
	}
	return fmt.Sprintf("is the number %v", v)
}
