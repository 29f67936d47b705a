package routes

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/routefence/routefence/policy"
)

// String returns the rule as "ip rule" takes it, without the family.
func (r Rule) String() string {
	var b strings.Builder
	word := func(format string, args ...any) { fmt.Fprintf(&b, " "+format, args...) }
	if r.Invert {
		word("not")
	}
	word("from %s", selector(r.Src.IsValid(), r.Src))
	if r.Dst.IsValid() {
		word("to %s", r.Dst)
	}
	if r.TOS != 0 {
		word("tos 0x%02x", r.TOS)
	}
	switch {
	case r.Mask != 0 && r.Mask != 0xffffffff:
		word("fwmark 0x%x/0x%x", r.Mark, r.Mask)
	case r.Mark != 0 || r.Mask != 0:
		word("fwmark 0x%x", r.Mark)
	}
	if r.IIF != "" {
		word("iif %s", r.IIF)
	}
	if r.OIF != "" {
		word("oif %s", r.OIF)
	}
	if r.More != "" {
		word("%s", r.More)
	}
	word("%s", r.action())
	if r.SuppressPrefix != 0 {
		word("suppress_prefixlength %d", r.SuppressPrefix-1)
	}
	if r.SuppressGroup != 0 {
		word("suppress_ifgroup %d", r.SuppressGroup-1)
	}
	return fmt.Sprintf("%d:%s", r.Priority, b.String())
}

// words returns the rule as arguments for "ip rule add pref", with its origin.
func (r Rule) words() string {
	return strings.Replace(r.String(), ":", "", 1) + fmt.Sprintf(" protocol %d", r.Protocol)
}

func (r Rule) action() string {
	switch r.Action {
	case ActLookup:
		return "lookup " + tableName(r.Table)
	case ActGoto:
		return fmt.Sprintf("goto %d", r.Goto)
	case ActNop:
		return "nop"
	case ActBlackhole:
		return "blackhole"
	case ActUnreachable:
		return "unreachable"
	case ActProhibit:
		return "prohibit"
	}
	return fmt.Sprintf("action %d", r.Action)
}

func selector(has bool, v fmt.Stringer) string {
	if !has {
		return "all"
	}
	return v.String()
}

func tableName(t uint32) string {
	switch t {
	case TableDefault:
		return "default"
	case TableMain:
		return "main"
	case TableLocal:
		return "local"
	}
	return strconv.FormatUint(uint64(t), 10)
}

var typeNames = map[Type]string{
	Unicast: "", Local: "local ", Broadcast: "broadcast ", Anycast: "anycast ", Multicast: "multicast ",
	Blackhole: "blackhole ", Unreachable: "unreachable ", Prohibit: "prohibit ", Throw: "throw ",
}

// Describe returns a route as "ip route show table all" prints it, with its table always named.
func (s State) Describe(r Route) string {
	var b strings.Builder
	name, known := typeNames[r.Type]
	if !known {
		name = fmt.Sprintf("type %d ", r.Type)
	}
	b.WriteString(name)
	if r.Dst.Bits() == 0 {
		b.WriteString("default")
	} else {
		b.WriteString(r.Dst.String())
	}
	if r.From.IsValid() {
		fmt.Fprintf(&b, " from %s", r.From)
	}
	if r.TOS != 0 {
		fmt.Fprintf(&b, " tos 0x%02x", r.TOS)
	}
	for _, h := range r.shownHops() {
		if len(r.Hops) > 1 {
			b.WriteString(" nexthop")
		}
		if h.Gateway.IsValid() {
			fmt.Fprintf(&b, " via %s", h.Gateway)
		}
		fmt.Fprintf(&b, " dev %s", s.linkName(h.Link))
		if h.Gateway.IsValid() && r.Ours() {
			b.WriteString(" onlink")
		}
	}
	fmt.Fprintf(&b, " table %s", tableName(r.Table))
	if r.Src.IsValid() {
		fmt.Fprintf(&b, " src %s", r.Src)
	}
	if r.Ours() {
		fmt.Fprintf(&b, " proto %d", r.Protocol)
	}
	if r.Metric != 0 && (r.Family == policy.IPv4 || r.Metric != 1024 || r.Ours()) {
		fmt.Fprintf(&b, " metric %d", r.Metric)
	}
	return b.String()
}

// shownHops leaves out the lo that IPv6 hangs its rejecting routes off.
func (r Route) shownHops() []Hop {
	if r.Type >= Blackhole {
		return nil
	}
	return r.Hops
}

func (s State) linkName(index int) string {
	if l, ok := s.Link(index); ok {
		return l.Name
	}
	return fmt.Sprintf("if%d", index)
}
