package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/routefence/routefence/ranges"
)

// DefaultTranslated is the range that Gardener keeps free for node networks translated on their way into the VPN.
const DefaultTranslated = "242.0.0.0/8"

// Expect returns the policy for a namespace where nat OUTPUT may begin at any moment to translate node networks into some ranges.
// A range that holds a lifeline is left out, and told with the reason: the pod lives there, and among more than its lifelines. So
// are allowed addresses.
func (p Policy) Expect(translated, allow []netip.Prefix, lifelines []Lifeline) (Policy, []string) {
	var expected []netip.Prefix
	var spared []string
	for _, i := range translated {
		held := slices.IndexFunc(lifelines, func(l Lifeline) bool { return i.Contains(l.Addr) })
		switch {
		case len(Only(p.Networks, FamilyOf(i))) == 0:
		case held < 0:
			expected = append(expected, i)
		default:
			spared = append(spared, fmt.Sprintf("%s: %s holds the pod's %s %s, so translations into it are stopped only once they have been read",
				FamilyOf(i), i, lifelines[held].Name, lifelines[held].Addr))
		}
	}
	p.Translated = ranges.Of(expected...).Minus(ranges.Of(allow...)).Prefixes()
	return p, spared
}
