// Package events tells what happens to the fence as events on the pod, for people who look there first. The fence never needs them.
package events

import (
	"fmt"
	"slices"
	"strings"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/verdict"
)

// Reason is why an event is told. Dashboards look for it, so none may be renamed.
type Reason string

// The reasons.
const (
	Fenced          Reason = "Fenced"
	NetworksChanged Reason = "NetworksChanged"
	TunnelUp        Reason = "TunnelUp"
	TunnelDown      Reason = "TunnelDown"
	LeakDetected    Reason = "LeakDetected"
)

// Event is something that happened to the fence.
type Event struct {
	Reason  Reason
	Message string
}

// warning reports whether somebody should look.
func (e Event) warning() bool { return e.Reason == TunnelDown || e.Reason == LeakDetected }

// between returns what happened from one state to a later one.
func between(before, after agent.Document) []Event {
	// It is asked every second, and nearly always nothing has happened.
	if slices.EqualFunc(before.Networks, after.Networks, alike) {
		return nil
	}
	var out []Event
	tell := func(r Reason, format string, args ...any) { out = append(out, Event{r, fmt.Sprintf(format, args...)}) }
	was, is := cidrs(before, every), cidrs(after, every)
	if len(was) > 0 && !slices.Equal(was, is) {
		tell(NetworksChanged, "node networks were %s and are %s", list(was), list(is))
	}
	if stands(after) && (!stands(before) || len(was) > 0 && !slices.Equal(was, is)) {
		tell(Fenced, "%s fenced by routes and firewall, as read back from the kernel", list(is))
	}
	if leaks := added(cidrs(before, leaking), cidrs(after, leaking)); len(leaks) > 0 {
		tell(LeakDetected, "%s can be reached outside of the VPN: %s", list(leaks), cause(after, leaks[0]))
	}
	if up := added(cidrs(before, tunneled), cidrs(after, tunneled)); len(up) > 0 {
		tell(TunnelUp, "traffic to %s goes through the VPN", list(up))
	}
	// A network that leaks instead goes somewhere, which is told above.
	if down := common(cidrs(before, tunneled), cidrs(after, blocked)); len(down) > 0 {
		tell(TunnelDown, "traffic to %s goes nowhere until the VPN is back", list(down))
	}
	return out
}

// alike reports whether there is nothing to tell of a network.
func alike(a, b agent.Network) bool {
	return a.CIDR == b.CIDR && a.State == b.State && a.Layers == b.Layers && leaking(a) == leaking(b)
}

func every(agent.Network) bool      { return true }
func tunneled(n agent.Network) bool { return n.State == verdict.Tunneled }
func blocked(n agent.Network) bool  { return n.State == verdict.Blocked }

func leaking(n agent.Network) bool {
	return n.State == verdict.Leaking || slices.ContainsFunc(n.Exceptions, func(e agent.Exception) bool { return e.State == verdict.Leaking })
}

// cidrs lists the networks of a state that are as said.
func cidrs(d agent.Document, as func(agent.Network) bool) []string {
	var out []string
	for _, n := range d.Networks {
		if as(n) {
			out = append(out, n.CIDR)
		}
	}
	return out
}

// stands reports whether both layers are in place for all networks.
func stands(d agent.Document) bool {
	return len(d.Networks) > 0 && !slices.ContainsFunc(d.Networks, func(n agent.Network) bool { return !n.Layers.Routes || !n.Layers.Firewall })
}

// added returns what is in b and not in a.
func added(a, b []string) []string {
	old := set(a)
	return slices.DeleteFunc(slices.Clone(b), func(s string) bool { return old[s] })
}

// common returns what is in both.
func common(a, b []string) []string {
	other := set(b)
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !other[s] })
}

func set(list []string) map[string]bool {
	out := make(map[string]bool, len(list))
	for _, s := range list {
		out[s] = true
	}
	return out
}

func cause(d agent.Document, cidr string) string {
	for _, n := range d.Networks {
		if n.CIDR != cidr {
			continue
		}
		for _, e := range n.Exceptions {
			if e.State == verdict.Leaking {
				return e.Cause
			}
		}
		return n.Cause
	}
	return ""
}

// list keeps a message readable.
func list(cidrs []string) string {
	const most = 5
	if len(cidrs) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(cidrs[:most], ", "), len(cidrs)-most)
	}
	return strings.Join(cidrs, ", ")
}
