package shoot

import (
	"slices"

	"go.yaml.in/yaml/v2"
)

// shape remembers of block-style objects which fields they have and which one stood last. YAML that was cut at the end of a
// line is valid YAML and may name fewer networks; that the last field is gone is the only trace. kubectl writes fields in
// the order of the alphabet, so in a Shoot that is status.uid, far behind the networks.
type shape struct {
	fields map[Field]bool
	ends   []Field
}

// depth is how deep shape looks: to spec.shoot.status.uid of a Cluster.
const depth = 4

func (s *shape) add(object string, o any) {
	if s.fields == nil {
		s.fields = make(map[Field]bool)
	}
	end := ""
	walk(o, "", depth, func(path string) {
		s.fields[Field{Object: object, Path: path}] = true
		end = path
	})
	s.ends = append(s.ends, Field{Object: object, Path: end})
}

// has reports whether the object is one that the API server wrote and that may have been cut.
func (s shape) has(object string) bool {
	return slices.ContainsFunc(s.ends, func(f Field) bool { return f.Object == object })
}

// walk calls found for every field in the order of the text.
func walk(o any, within string, depth int, found func(path string)) {
	mapping, ok := o.(yaml.MapSlice)
	if !ok || depth == 0 {
		return
	}
	for _, item := range mapping {
		if name, ok := item.Key.(string); ok {
			found(within + name)
			walk(item.Value, within+name+".", depth-1, found)
		}
	}
}

// missesEndOf returns the field that stood last in an object of last and that the same object in s has not.
func (s shape) missesEndOf(last shape) (Field, bool) {
	objects := make(map[string]bool)
	for f := range s.fields {
		objects[f.Object] = true
	}
	for _, end := range last.ends {
		if objects[end.Object] && !s.fields[end] {
			return end, true
		}
	}
	return Field{}, false
}
