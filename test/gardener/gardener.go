// Package gardener has the workloads of Gardener's control planes that matter to the fence, in the shapes in which gardenlet writes
// them (v1.147), and such as look like them and are none.
package gardener

import (
	"embed"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed objects
var files embed.FS

// Object is one workload.
type Object struct {
	// Name is the file's, without its ending.
	Name string
	// Fenced says that its pods are to be fenced.
	Fenced bool
	// YAML is the file.
	YAML []byte
}

// Tree returns the object as decoded JSON, each time afresh.
func (o Object) Tree() map[string]any {
	var tree map[string]any
	if err := yaml.Unmarshal(o.YAML, &tree); err != nil {
		panic(fmt.Errorf("%s: %w", o.Name, err))
	}
	return tree
}

// Objects returns all workloads, by name.
func Objects() []Object {
	var out []Object
	for _, dir := range []string{"fenced", "alone"} {
		entries, err := files.ReadDir(path.Join("objects", dir))
		if err != nil {
			panic(err)
		}
		for _, e := range entries {
			data, err := files.ReadFile(path.Join("objects", dir, e.Name()))
			if err != nil {
				panic(err)
			}
			out = append(out, Object{Name: strings.TrimSuffix(e.Name(), ".yaml"), Fenced: dir == "fenced", YAML: data})
		}
	}
	return out
}

// Get returns the workload with that name.
func Get(name string) Object {
	for _, o := range Objects() {
		if o.Name == name {
			return o
		}
	}
	panic("no workload " + name)
}
