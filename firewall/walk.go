package firewall

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/routefence/routefence/ranges"
)

// walk follows a whole set of addresses through the chains of one table, as the kernel follows one packet.
type walk struct {
	chains  map[string]Chain
	sets    map[string]ranges.Set
	table   Table
	base    string
	out     string
	passed  []Pass
	done    ranges.Set // the union of passed
	returns []Pass     // what a RETURN let go, to explain what passes by the policy in the end
	entered bool       // our chain was reached
}

// depthLimit is deeper than the kernel allows; it only guards against input that no kernel made.
const depthLimit = 64

// effect is what a rule does to the addresses that it matches.
type effect uint8

const (
	nothing effect = iota
	accept
	stop
	giveBack
	enter
)

// step is a run of rules with one effect. Batches matter: ten thousand plain rules, each a set operation of its own on a set
// that breaks into ten thousand pieces, would take seconds.
type step struct {
	effect effect
	// sure says that every packet to the addresses matches. If not, some may.
	sure   bool
	cause  string
	rule   Rule
	addrs  ranges.Set
	single []netip.Prefix
}

// run walks a chain and returns the addresses that come out at its end or by RETURN.
func (w *walk) run(name string, in ranges.Set, depth int) (back ranges.Set) {
	if depth > depthLimit {
		w.pass(in, "chains nest too deeply at "+name)
		return nil
	}
	rest := in
	for _, s := range w.steps(w.chains[name].Rules) {
		hit := rest.Intersect(s.addrs.Union(ranges.Of(s.single...)))
		if hit.Empty() {
			continue
		}
		switch s.effect {
		case accept:
			w.pass(hit, s.cause)
			rest = rest.Minus(hit)
		case stop:
			rest = rest.Minus(hit)
		case giveBack:
			w.returns = addPass(w.returns, hit, s.cause)
			back = back.Union(hit)
		case enter:
			w.entered = w.entered || s.rule.Target == ChainName
			out := w.run(s.rule.Target, hit, depth+1)
			if s.rule.Goto {
				back = back.Union(out)
			} else if s.sure {
				rest = rest.Minus(hit).Union(out)
			}
		}
		if s.sure && (s.effect == giveBack || s.effect == enter && s.rule.Goto) {
			rest = rest.Minus(hit)
		}
	}
	return back.Union(rest)
}

// pass records addresses that get through, each under the first cause that was found.
func (w *walk) pass(addrs ranges.Set, cause string) {
	if addrs = addrs.Minus(w.done); !addrs.Empty() {
		w.passed = addPass(w.passed, addrs, cause)
		w.done = w.done.Union(addrs)
	}
}

// steps joins neighbouring rules that have the same effect for the same reason.
func (w *walk) steps(rules []Rule) []step {
	var steps []step
	early := !w.entered && slices.ContainsFunc(w.chains[w.base].Rules, denies)
	for _, r := range rules {
		early = early && !denies(r)
		s := w.step(r)
		if early && s.cause != "" {
			s.cause += " before -j " + ChainName
		}
		if s.effect == nothing {
			continue
		}
		if n := len(steps) - 1; n >= 0 && s.effect != enter && steps[n].effect == s.effect &&
			steps[n].sure == s.sure && steps[n].cause == s.cause {
			steps[n].single = append(steps[n].single, s.single...)
			steps[n].addrs = steps[n].addrs.Union(s.addrs)
			continue
		}
		steps = append(steps, s)
	}
	return steps
}

// denies reports whether a rule sends every packet to the chain that denies.
func denies(r Rule) bool { return isJump(r) && r.Target == ChainName }

// step turns one rule into a step.
func (w *walk) step(r Rule) step {
	if !r.Out.matches(w.out) || r.spares() {
		return step{}
	}
	conditions := Rule{In: r.In, Src: r.Src, Proto: r.Proto, CtState: r.CtState, CtDir: r.CtDir, CtMark: r.CtMark, Flags: r.Flags,
		ICMP: r.ICMP, SrcSet: r.SrcSet, Unknown: r.Unknown}
	s := step{rule: r, sure: conditions == Rule{}}
	if members, known := w.sets[r.Set]; known {
		s.addrs = members.Intersect(r.destinations(w.table.Family))
	} else if s.sure = s.sure && r.Set == ""; r.Dst.Prefix.IsValid() && !r.Dst.Not {
		s.single = []netip.Prefix{r.Dst.Prefix}
	} else {
		s.addrs = r.destinations(w.table.Family)
	}
	s.effect = w.effect(r)
	if s.effect == stop && !s.sure {
		s.effect = nothing
	}
	if s.effect == accept || s.effect == giveBack {
		s.cause = w.cause(r)
	}
	return s
}

// spares reports whether a rule matches no packet of the connections that Passing speaks of: only answers, or neighbour discovery,
// which carries nothing.
func (r Rule) spares() bool {
	return r.CtDir == "REPLY" || r.Proto == "ipv6-icmp" && slices.Contains(neighbourDiscovery, r.ICMP)
}

func (w *walk) effect(r Rule) effect {
	if _, found := w.chains[r.Target]; found {
		return enter
	}
	switch {
	case r.Target == "DROP" || r.Target == "REJECT":
		return stop
	case r.Target == "RETURN":
		return giveBack
	case r.Target == "" || slices.Contains(passiveTargets, r.Target):
		return nothing
	}
	// ACCEPT, NFQUEUE, whose listener may accept, and targets that are not known here.
	return accept
}

// passiveTargets are those after which the next rule is asked.
var passiveTargets = []string{
	"AUDIT", "CHECKSUM", "CLASSIFY", "CONNMARK", "CONNSECMARK", "CT", "DSCP", "ECN", "HL", "HMARK", "LED", "LOG", "MARK",
	"NFLOG", "NOTRACK", "RATEEST", "SECMARK", "SET", "TCPMSS", "TCPOPTSTRIP", "TEE", "TOS", "TRACE", "TTL", "ULOG",
}

func (w *walk) cause(r Rule) string {
	if r.Owned() {
		return fmt.Sprintf("%s (chain %s in %s)", r.Comment, ChainName, w.table.Name)
	}
	return "-A " + r.Text
}

// explain records what passes by the policy of the base chain.
func (w *walk) explain(rest ranges.Set) {
	for _, r := range w.returns {
		if some := r.Addrs.Intersect(rest); !some.Empty() {
			w.pass(some, r.Cause)
			rest = rest.Minus(some)
		}
	}
	if rest.Empty() {
		return
	}
	_, present := w.chains[ChainName]
	cause := fmt.Sprintf("chain %s in %s has no rule for it", ChainName, w.table.Name)
	switch {
	case !present:
		cause = fmt.Sprintf("no chain %s in %s", ChainName, w.table.Name)
	case !w.entered:
		cause = fmt.Sprintf("no jump to %s in %s %s", ChainName, w.table.Name, w.base)
	}
	w.pass(rest, cause)
}
