package lint

import (
	"fmt"
	"strings"

	"github.com/routefence/routefence/policy"
)

// object is a Shoot or Seed as a tree, of which only a few fields matter.
type object struct {
	tree map[string]any
	name string
}

func newObject(kind string, tree map[string]any) object {
	meta, _ := at(tree, "metadata").(map[string]any)
	name, _ := meta["name"].(string)
	if namespace, _ := meta["namespace"].(string); namespace != "" {
		name = namespace + "/" + name
	}
	return object{tree, strings.TrimSpace(kind + " " + name)}
}

// at returns what stands at a path, nil if there is nothing.
func at(tree map[string]any, path string) any {
	var v any = tree
	for step := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[step]
	}
	return v
}

// value is a string, with its own path.
type value struct{ field, text string }

// values returns the string at a path, or those of the list there; empty ones are as good as none.
func (o object) values(path string) []value {
	switch v := at(o.tree, path).(type) {
	case nil:
		return nil
	case string:
		if v == "" {
			return nil
		}
		return []value{{path, v}}
	case []any:
		var out []value
		for i, e := range v {
			out = append(out, value{fmt.Sprintf("%s[%d]", path, i), fmt.Sprint(e)})
		}
		return out
	default:
		return []value{{path, fmt.Sprint(v)}}
	}
}

// withoutVPN reports whether the shoot has no nodes, or runs its control plane on them.
func (o object) withoutVPN() bool {
	provider, ok := at(o.tree, "spec.provider").(map[string]any)
	workers, _ := provider["workers"].([]any)
	for _, w := range workers {
		if w, _ := w.(map[string]any); w["controlPlane"] != nil {
			return true
		}
	}
	return ok && len(workers) == 0
}

// families are those of the shoot's networks.
func (o object) families() []policy.Family {
	var out []policy.Family
	for _, v := range o.values("spec.networking.ipFamilies") {
		for _, f := range policy.Families {
			if strings.EqualFold(v.text, f.String()) {
				out = append(out, f)
			}
		}
	}
	if len(out) == 0 {
		out = []policy.Family{policy.IPv4}
	}
	return out
}
