package firewall

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// replyMark is on connections that came in over a fenced interface, and on packets that answer them.
var replyMark = Mark{policy.ReplyMark, policy.ReplyMask}

const commentReply = "routefence: reply"

// beginning are the flags of the packet that begins a TCP connection.
var beginning = TCPFlags{Mask: "ACK,FIN,RST,SYN", Set: "SYN"}

// Answerable returns the policy less the replies for which a kernel lacks the means. Without a way to tell an answer from a new
// connection nothing is let out.
func Answerable(p policy.Policy, lacks map[policy.Family]Lacks) policy.Policy {
	for f, l := range lacks {
		if l.Conntrack || l.Connmark {
			p.Replies = policy.Except(p.Replies, f)
		}
	}
	return p
}

// isReply completes a rule so that it matches answers to connections that came in over a fenced interface. The direction alone
// would do for those that begin here; the mark also keeps back answers to what came in through the tunnel, when that is gone.
func isReply(r Rule) Rule {
	r.CtDir, r.CtMark, r.Comment = "REPLY", replyMark, commentReply
	return r
}

// answers lets answers pass, before anything stops them.
func (d design) answers() []Rule {
	var rules []Rule
	for _, r := range d.answered("dst") {
		r = isReply(r)
		r.Target = "RETURN"
		rules = append(rules, r)
		if d.family == policy.IPv6 {
			// Who asks on the link for our hardware address, with a node address as source, needs an answer too before anything else can
			// come in; and the kernel asks back now and then. conntrack does not track either.
			for _, kind := range neighbourDiscovery {
				rules = append(rules, Rule{Dst: r.Dst, Set: r.Set, Proto: "ipv6-icmp", ICMP: kind, Target: "RETURN", Comment: commentReply})
			}
		}
	}
	return rules
}

// neighbourDiscovery are the ICMPv6 types of what IPv6 has for ARP.
var neighbourDiscovery = []string{"135", "136"}

// marking returns the chain that gives connections which come in over a fenced interface our mark, and their answers too, for
// the kernel to route them again.
func (d design) marking() []Rule {
	var rules []Rule
	for _, r := range d.answered("dst") {
		r = isReply(r)
		r.Target, r.Restore = "CONNMARK", Masks{policy.ReplyMask, policy.ReplyMask}
		rules = append(rules, r)
	}
	// conntrack takes a TCP connection that was there before it for one that begins with the first packet it sees. If that came
	// from a node, a connection from here that runs outside of the VPN would look as if it had come in.
	notBeginning := beginning
	notBeginning.Not = true
	rules = append(rules, Rule{Proto: "tcp", Flags: notBeginning, Target: "RETURN", Comment: commentReply})
	for _, name := range d.exempt {
		rules = append(rules, Rule{In: Interface{Name: name}, Target: "RETURN", Comment: commentExempt})
	}
	for _, name := range d.fenced {
		for _, r := range d.answered("src") {
			r.In.Name, r.CtState, r.Target, r.SetMark, r.Comment = name, "NEW", "CONNMARK", replyMark, commentReply
			rules = append(rules, r)
		}
	}
	return rules
}

// answered returns a rule without target for each network whose connections are answered, by its side, "dst" or "src"; or the
// one for the set where these are all networks.
func (d design) answered(side string) []Rule {
	all := d.set != "" && slices.Equal(d.replies, d.networks)
	switch {
	case all && side == "src":
		return []Rule{{SrcSet: d.set}}
	case all:
		return []Rule{{Set: d.set}}
	case side == "dst":
		return prefixRules(d.replies)
	}
	var rules []Rule
	for _, p := range d.replies {
		rules = append(rules, Rule{Src: network(p)})
	}
	return rules
}

// sinks refuses what the routes sent to lo, so that nat could see it or an answer be marked, and what was neither translated nor an
// answer. Without them it would be delivered to the pod itself.
func (d design) sinks() []Rule {
	var rules []Rule
	for _, own := range d.own {
		rules = append(rules, Rule{
			Out: Interface{Name: "lo"}, Dst: network(own), Target: "RETURN", Comment: commentOwn})
	}
	refuse := func(targets []Rule, comment string) {
		for _, r := range targets {
			r.Out.Name, r.Comment = "lo", comment
			rules = append(rules, d.reject(r)...)
		}
	}
	switch {
	case d.set == "":
		refuse(prefixRules(d.from), commentTranslated)
		refuse(prefixRules(minus(d.replies, d.from)), commentReply)
	case len(d.from) > 0:
		refuse(d.destinations(), commentTranslated)
	default:
		refuse(d.destinations(), commentReply)
	}
	return rules
}

func minus(a, b []netip.Prefix) []netip.Prefix {
	return ranges.Of(a...).Minus(ranges.Of(b...)).Prefixes()
}
