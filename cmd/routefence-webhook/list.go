package main

import (
	"maps"
	"strings"
)

// adopt returns an item of a List with the kind of its own. The API server writes typed lists (DeploymentList) whose items have none: the
// list says it once for all of them.
func adopt(list, item map[string]any) map[string]any {
	kind, _ := list["kind"].(string)
	kind = strings.TrimSuffix(kind, "List")
	if own, _ := item["kind"].(string); own != "" || kind == "" {
		return item
	}
	out := maps.Clone(item)
	out["kind"], out["apiVersion"] = kind, list["apiVersion"]
	return out
}

// release takes from an adopted item what it did not have before.
func release(adopted, item map[string]any) map[string]any {
	out := maps.Clone(adopted)
	for _, key := range []string{"kind", "apiVersion"} {
		if v, had := item[key]; had {
			out[key] = v
		} else {
			delete(out, key)
		}
	}
	return out
}
