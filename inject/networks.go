package inject

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// nodeNetworks is what Gardener calls the variable since v1.124; the others are what it was called before.
var nodeNetworks = []string{"SHOOT_NODE_NETWORKS", "NODE_NETWORKS", "NODE_NETWORK"}

// known are the node networks known at injection.
type known struct {
	// variable is an environment variable's value or valueFrom, as in the pod's own containers; nil if they have none.
	variable map[string]any
	// more are networks that the pod's containers do not name.
	more []netip.Prefix
	// any reports that there is a network among them.
	any      bool
	warnings []string
}

// learn collects what the pod's containers and the options say. Where they say the same, the result is the pod's own text. The agent has
// one variable: if that is a reference, what others have literally goes to the further networks.
func (w *workload) learn(o Options) known {
	var k known
	references, said := split(w.variables())
	var own []netip.Prefix
	if len(references) > 0 {
		// What it refers to cannot be seen here, and the container will.
		k.variable, k.any = map[string]any{"valueFrom": clone(references[0])}, true
		own = k.judge(said, "it is left out")
		k.more = ranges.Of(own...).Prefixes()
	} else if own = k.judge(said, "the pod will not be ready until that is put right"); len(own) > 0 {
		k.variable = map[string]any{"value": strings.Join(said, ",")}
	}
	if len(references) > 1 {
		k.warn("%s: the containers take it from different places, and routefence from the first of them alone; name the others by %s",
			nodeNetworks[0], sourceKey)
	}
	options := k.canonical(o.Networks)
	if !ranges.Of(options...).Minus(ranges.Of(own...)).Empty() {
		k.more = ranges.Of(append(options, k.more...)...).Prefixes()
	}
	k.any = k.any || len(own) > 0 || len(k.more) > 0
	return k
}

// split tells the different references among variables from the different literal values.
func split(variables []map[string]any) (references []any, literals []string) {
	for _, v := range variables {
		from, value := v["valueFrom"], text(v, "value")
		switch {
		case from == nil && !slices.Contains(literals, value):
			literals = append(literals, value)
		case from != nil && !slices.ContainsFunc(references, func(r any) bool { return same(r, from) }):
			references = append(references, from)
		}
	}
	return references, literals
}

// canonical leaves out what the agent refuses as a flag, as that would keep it from starting, and the pod with it.
func (k *known) canonical(networks []netip.Prefix) (out []netip.Prefix) {
	for _, p := range networks {
		c, _, err := policy.ParsePrefix(p.String())
		if err != nil {
			k.warn("node network %v is left out: %v", p, err)
			continue
		}
		out = append(out, c)
	}
	return out
}

// variables returns the entries that name node networks, at most one of each container: the last of a name counts.
func (w *workload) variables() []map[string]any {
	var out []map[string]any
	for _, c := range w.everybody() {
		env, err := objects(c, "", "env")
		if err != nil {
			continue // not ours to judge; the API server will
		}
		slices.Reverse(env)
		for _, name := range nodeNetworks {
			if i := named(env, name); i >= 0 && (env[i]["valueFrom"] != nil || text(env[i], "value") != "") {
				out = append(out, env[i])
				break
			}
		}
	}
	return out
}

// judge reads the lists, and warns of what the agent will not take, with what comes of it.
func (k *known) judge(lists []string, consequence string) []netip.Prefix {
	networks, _, problems := policy.ParseList(strings.Join(lists, ","))
	for _, err := range problems {
		k.warn("%s: %v; %s", nodeNetworks[0], err, consequence)
	}
	return networks
}

func (k *known) warn(format string, args ...any) {
	k.warnings = append(k.warnings, fmt.Sprintf(format, args...))
}
