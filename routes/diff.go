package routes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/routefence/routefence/policy"
)

// Op is a kind of change.
type Op uint8

// The changes, each one write to the kernel.
const (
	AddRoute Op = iota
	// ReplaceRoute puts a route in the place of another one of ours with the same destination and metric, in one step.
	ReplaceRoute
	DelRoute
	AddRule
	DelRule
	// SaveGroup notes the group a link has, as its alternative name, before SetGroup overwrites it.
	SaveGroup
	SetGroup
	// ForgetGroup takes the note away again.
	ForgetGroup
)

// Change is one write. Only the fields that its Op names are set.
type Change struct {
	Op    Op
	Route Route
	Rule  Rule
	Link  Link
	Group uint32
	// text is the object in ip's words, since a change is printed where no State is at hand to name its links. A route without links
	// has none: there may be ten thousand, and nearly never does anybody ask.
	text string
}

// Removes reports whether the change takes something away. Such changes come last and wait for all others to succeed, so
// that no failure weakens what stands.
func (c Change) Removes() bool { return c.Op == DelRoute || c.Op == DelRule || c.Op == ForgetGroup }

// OfRoute reports whether the change is one of a route.
func (c Change) OfRoute() bool { return c.Op == AddRoute || c.Op == ReplaceRoute || c.Op == DelRoute }

// String returns the change as a command line for ip.
func (c Change) String() string {
	switch c.Op {
	case AddRule:
		return "ip " + flag(c.Rule.Family) + " rule add pref " + c.text
	case DelRule:
		return "ip " + flag(c.Rule.Family) + " rule del pref " + c.text
	case AddRoute:
		return "ip " + flag(c.Route.Family) + " route add " + c.route()
	case ReplaceRoute:
		return "ip " + flag(c.Route.Family) + " route replace " + c.route()
	case DelRoute:
		return "ip " + flag(c.Route.Family) + " route del " + c.route()
	case SaveGroup:
		return fmt.Sprintf("ip link property add dev %s altname %s", word(c.Link.Name), SavedName(c.Group))
	case ForgetGroup:
		return fmt.Sprintf("ip link property del dev %s altname %s", word(c.Link.Name), SavedName(c.Group))
	}
	return fmt.Sprintf("ip link set dev %s group %d", word(c.Link.Name), c.Group)
}

func (c Change) route() string {
	if c.text == "" {
		return State{}.Describe(c.Route)
	}
	return c.text
}

// ofRoute returns a change of a route of this state, or of one that should be there.
func (s State) ofRoute(op Op, r *Route) Change {
	c := Change{Op: op, Route: *r}
	if len(r.Hops) > 0 {
		c.text = s.Describe(*r)
	}
	return c
}

// word quotes a link's name for a shell where it needs it: the kernel lets a link be called "$(reboot)".
func word(name string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._@+:-", r)
	}
	if strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

func flag(f policy.Family) string {
	if f == policy.IPv4 {
		return "-4"
	}
	return "-6"
}

// SavedPrefix starts the alternative name that keeps a link's former group.
const SavedPrefix = "routefence-group-"

// SavedName returns the alternative name that stands for a former group.
func SavedName(group uint32) string { return fmt.Sprintf("%s%d", SavedPrefix, group) }

// compare orders routes of ours by all that tells two of them apart; equal ones are the same to the kernel and to us. Each pass
// compares ten thousand routes several times, and nearly always the first line that differs is the destination's.
func compare(a, b *Route) int {
	if c := cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Table, b.Table)); c != 0 {
		return c
	}
	if c := a.Dst.Compare(b.Dst); c != 0 {
		return c
	}
	if c := cmp.Or(cmp.Compare(a.Metric, b.Metric), cmp.Compare(a.Type, b.Type)); c != 0 {
		return c
	}
	one, other := a.hop(), b.hop()
	return cmp.Or(a.Src.Compare(b.Src), cmp.Compare(one.Link, other.Link), one.Gateway.Compare(other.Gateway))
}

// hop is where a unicast route leads. IPv6 hangs a blackhole off lo, IPv4 off nothing: there it means nothing.
func (r *Route) hop() Hop {
	if r.Type == Unicast && len(r.Hops) > 0 {
		return r.Hops[0]
	}
	return Hop{}
}

// inOrder returns the routes in the order of compare, which the kernel's list of an IPv4 table has already.
func inOrder(routes []*Route) []*Route {
	if !slices.IsSortedFunc(routes, compare) {
		slices.SortFunc(routes, compare)
	}
	return routes
}

// pointers returns those routes that are meant, in their order and without a copy.
func pointers(routes []Route, meant func(*Route) bool) []*Route {
	out := make([]*Route, 0, len(routes))
	for i := range routes {
		if meant(&routes[i]) {
			out = append(out, &routes[i])
		}
	}
	return out
}

// Diff returns the writes that turn what the kernel has into the fence, in a safe order: routes that no rule reaches
// yet, then groups, then the rule that lets the VPN's routes win, then the rule that denies; deletions last. At no step is an
// address uncovered that both the old and the new fence cover, and none is cut that the VPN carries.
func Diff(want Fence, have State) []Change {
	adds, dels := routeChanges(want.Routes, have)
	adds = append(adds, groupChanges(want)...)
	ruleAdds, ruleDels := ruleChanges(want.Rules, have.Rules)
	return append(append(append(adds, ruleAdds...), ruleDels...), dels...)
}

// routeChanges compares the wanted routes with those of ours that are there, in one sweep over both.
func routeChanges(want []Route, have State) (adds, dels []Change) {
	ours, wanted := inOrder(pointers(have.Routes, (*Route).Ours)), inOrder(pointers(want, func(*Route) bool { return true }))
	for len(ours) > 0 || len(wanted) > 0 {
		order := 0
		switch {
		case len(ours) == 0:
			order = -1
		case len(wanted) == 0:
			order = 1
		default:
			order = compare(wanted[0], ours[0])
		}
		switch {
		case order < 0:
			adds = append(adds, have.ofRoute(AddRoute, wanted[0]))
		case order > 0:
			dels = append(dels, have.ofRoute(DelRoute, ours[0]))
		}
		if order <= 0 {
			wanted = wanted[1:]
		}
		if order >= 0 {
			ours = ours[1:]
		}
	}
	// A blackhole goes before the sink over it: alone for a moment, it would cut the answers that a sink of another length lets
	// through by then.
	slices.Reverse(dels)
	return replacements(adds, dels)
}

// place is what the kernel holds one route for; two of ours that differ in anything else cannot stand side by side.
type place struct {
	table  uint32
	dst    netip.Prefix
	metric uint32
}

func placeOf(r Route) place { return place{r.Table, r.Dst, r.Metric} }

// replacements turns an addition whose place one of our old routes has into a replacement.
func replacements(adds, dels []Change) (added, deleted []Change) {
	taken := make(map[place]bool, len(dels))
	for _, c := range dels {
		taken[placeOf(c.Route)] = true
	}
	freed := map[place]bool{}
	for i, c := range adds {
		if p := placeOf(c.Route); taken[p] {
			adds[i].Op = ReplaceRoute
			freed[p] = true
		}
	}
	dels = slices.DeleteFunc(dels, func(c Change) bool { return freed[placeOf(c.Route)] })
	return adds, dels
}

func groupChanges(want Fence) []Change {
	var out []Change
	for _, l := range want.Grouped {
		if l.Group == Group {
			continue
		}
		// A group that is not the default belongs to someone; a note that is there already is the older truth.
		if l.Group != 0 && l.Saved == nil {
			out = append(out, Change{Op: SaveGroup, Link: l, Group: l.Group})
		}
		out = append(out, Change{Op: SetGroup, Link: l, Group: Group})
	}
	for _, l := range want.Released {
		out = append(out, release(l)...)
	}
	return out
}

// release returns a link to the group it had before.
func release(l Link) []Change {
	if l.Saved == nil {
		return []Change{{Op: SetGroup, Link: l, Group: 0}}
	}
	return []Change{{Op: SetGroup, Link: l, Group: *l.Saved}, {Op: ForgetGroup, Link: l, Group: *l.Saved}}
}

func ruleChanges(want, have []Rule) (adds, dels []Change) {
	present := map[Rule]bool{}
	wanted := map[Rule]bool{}
	for _, r := range want {
		wanted[r] = true
	}
	for _, r := range have {
		if !r.Ours() {
			continue
		}
		if wanted[r] && !present[r] {
			present[r] = true
			continue
		}
		dels = append(dels, Change{Op: DelRule, Rule: r, text: r.words()})
	}
	for _, r := range want {
		if !present[r] {
			adds = append(adds, Change{Op: AddRule, Rule: r, text: r.words()})
		}
	}
	// The rule that denies goes before the one that lets the VPN's routes win, or the VPN would be cut in between.
	slices.Reverse(dels)
	return adds, dels
}

// Remove returns the writes that take the routing fence away: first the rules, so that routing is what it was in one step
// per family, then what only they used.
func Remove(have State) []Change {
	_, out := ruleChanges(nil, have.Rules)
	for _, r := range pointers(have.Routes, (*Route).Ours) {
		out = append(out, have.ofRoute(DelRoute, r))
	}
	for _, l := range have.Links {
		if l.Group == Group || l.Saved != nil {
			out = append(out, release(l)...)
		}
	}
	return out
}
