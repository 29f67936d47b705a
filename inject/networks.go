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

// learn collects what the pod's containers and the options say. Where they say the same, the result is the pod's own text.
func (w *workload) learn(o Options) known {
	var k known
	values := w.variables()
	var said []string
	for _, v := range values {
		value, literal := v["value"].(string)
		if !literal {
			// What it refers to cannot be seen here, and the container will.
			k.variable, k.any = map[string]any{"valueFrom": clone(v["valueFrom"])}, true
			break
		}
		if !slices.Contains(said, value) {
			said = append(said, value)
		}
	}
	own := k.judge(said)
	if k.variable == nil && len(said) > 0 && len(own) > 0 {
		k.variable = map[string]any{"value": strings.Join(said, ",")}
	}
	covered := ranges.Of(own...)
	var all []netip.Prefix
	for _, p := range o.Networks {
		// What the agent refuses as a flag would keep it from starting, and the pod with it.
		canonical, _, err := policy.ParsePrefix(p.String())
		if err != nil {
			k.warn("node network %v is left out: %v", p, err)
			continue
		}
		all = append(all, canonical)
	}
	if !ranges.Of(all...).Minus(covered).Empty() {
		k.more = ranges.Of(all...).Prefixes()
	}
	k.any = k.any || len(own) > 0 || len(k.more) > 0
	return k
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

// judge reads the lists, and warns of what the agent will not take.
func (k *known) judge(lists []string) []netip.Prefix {
	networks, _, problems := policy.ParseList(strings.Join(lists, ","))
	for _, err := range problems {
		k.warn("%s: %v; the pod will not be ready until that is put right", nodeNetworks[0], err)
	}
	return networks
}

func (k *known) warn(format string, args ...any) {
	k.warnings = append(k.warnings, fmt.Sprintf(format, args...))
}
