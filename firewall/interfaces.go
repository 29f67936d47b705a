package firewall

import (
	"slices"
	"strings"

	"github.com/routefence/routefence/policy"
)

// longestName is the longest interface name that the kernel, and so iptables, takes.
const longestName = 15

// interfaceNames translates the interface patterns of a policy. Both results are interface names of iptables; "" means any.
// exempt holds the tunnels and lo, as far as a fenced name covers them too: their rules must come first.
func interfaceNames(p policy.Policy, links []string) (fenced, exempt []string) {
	fenced = translate(p.Fenced, links, func(link string) bool { return p.Role(link) == policy.Fenced })
	tunnels := translate(p.Tunnels, links, func(link string) bool { return p.Role(link) == policy.Tunnel })
	for _, name := range append([]string{"lo"}, tunnels...) {
		if slices.ContainsFunc(fenced, func(f string) bool { return overlap(f, name) }) {
			exempt = append(exempt, name)
		}
	}
	return fenced, exempt
}

func translate(patterns policy.Patterns, links []string, holds func(link string) bool) []string {
	var out []string
	for _, pattern := range patterns {
		switch prefix, wild := strings.CutSuffix(pattern, "*"); {
		case strings.ContainsAny(prefix, `*?[\`):
			for _, link := range links {
				if (policy.Patterns{pattern}).Match(link) && holds(link) {
					out = append(out, link)
				}
			}
		case len(prefix) > longestName || prefix == "" && !wild:
			// No link can have such a name, and iptables would refuse the whole restore.
		case wild && prefix == "":
			out = append(out, "")
		case wild && len(prefix) < longestName:
			out = append(out, prefix+"+")
		default:
			out = append(out, prefix)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// overlap reports whether some link can match both names.
func overlap(a, b string) bool {
	a, aWild := wildcard(a)
	b, bWild := wildcard(b)
	return a == b || aWild && strings.HasPrefix(b, a) || bWild && strings.HasPrefix(a, b)
}

// wildcard splits a name of iptables into its fixed part and whether anything may follow.
func wildcard(name string) (string, bool) {
	fixed, wild := strings.CutSuffix(name, "+")
	return fixed, wild || name == ""
}

// matches reports whether a rule's interface asks for a link of this name.
func (i Interface) matches(link string) bool {
	fixed, wild := wildcard(i.Name)
	hit := link == fixed || wild && strings.HasPrefix(link, fixed)
	return hit != i.Not
}
