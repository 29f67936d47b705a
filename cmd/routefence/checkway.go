package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/check"
	"github.com/routefence/routefence/explain"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/selftest"
	"github.com/routefence/routefence/selftest/dial"
	"github.com/routefence/routefence/verdict"
)

// mostTried is how many node addresses are really tried; all of them are looked up.
const mostTried = 3

// way looks at how packets to nodes leave this network namespace. Without a fence and without node networks it is most likely no
// control plane pod, and where its packets go means nothing.
func (x *examination) way(c fenceConfig, required bool) {
	fence := check.Result{Group: check.Way, Kind: check.Fence, Name: "the fence stands"}
	t, err := newTrial(c)
	if err != nil {
		x.unseen(fence, err, required)
		return
	}
	if !required && !t.stands() && len(c.given()) == 0 {
		x.skip(fence, "there is no fence here and no node network is given, so this is taken for no control plane pod (--way=on looks all the same)")
		return
	}
	fence.Outcome = check.Passed
	if open := t.gaps(); len(open) > 0 {
		fence.Outcome, fence.Message = check.Failed, strings.Join(open, "\n")
		fence.Hint = `"routefence run" puts it up and keeps it; "routefence status" says what a running agent lacks`
	}
	x.results = append(x.results, fence)
	nodes := slices.DeleteFunc(slices.Clone(x.nodes), t.barred().Contains)
	tried := selftest.Sample(nodes, mostTried)
	for _, a := range nodes {
		x.address(t, a, slices.Contains(tried, a))
	}
}

// unseen notes that the kernel could not be read. Outside of a control plane pod that is nothing to worry about.
func (x *examination) unseen(r check.Result, err error, required bool) {
	if !required {
		x.skip(r, fmt.Sprintf("this network namespace cannot be looked at: %v", err))
		return
	}
	r.Outcome, r.Message = check.Failed, err.Error()
	x.results = append(x.results, r)
}

// gaps says what is missing of the fence, in either layer, and what keeps it from guarding anything although it stands.
func (t *trial) gaps() []string {
	if !t.stands() {
		return []string{"there is no fence in this network namespace, neither routes nor rules"}
	}
	out := append(t.report.Problems, agent.Unguarded(t.policy, t.state)...)
	if len(t.policy.Networks) == 0 {
		out = append(out, "no node network is fenced")
	}
	if missing := t.missingRoutes(); len(missing) > 0 {
		out = append(out, fmt.Sprintf("the routing layer lacks %d of its parts, such as: %s", len(missing), missing[0]))
	}
	for _, v := range verdict.Of(t.policy, t.translations, t.state, t.chains) {
		for _, e := range slices.Concat(v.Exceptions, v.Unstopped) {
			if e.State == verdict.Leaking {
				out = append(out, fmt.Sprintf("%s can leave by %s: %s", e.CIDR, e.Interface, e.Cause))
			}
		}
	}
	return out
}

// missingRoutes returns what the routing layer needs and does not have. What it has besides depends on the flags of the agent, which
// are not known here: sinks for answers and translations.
func (t *trial) missingRoutes() []routes.Change {
	p := t.policy
	for f, gone := range t.chains.Absent {
		if gone {
			p = p.Less(f)
		}
	}
	all := routes.Diff(routes.Desired(p, nil, t.state), t.state)
	return slices.DeleteFunc(all, func(c routes.Change) bool {
		return c.Removes() || c.OfRoute() && c.Route.Type != routes.Blackhole
	})
}

// address follows a packet to a node through the kernel, and where tried really sends one by a socket that is bound to each fenced
// interface.
func (x *examination) address(t *trial, a netip.Addr, tried bool) {
	answer := explain.Address(a, t.policy, t.state, t.chains, t.translations)
	r := check.Result{Group: check.Way, Kind: check.Leak, Name: fmt.Sprintf("%s is not reached past the VPN", a), Outcome: check.Passed}
	var leaks []string
	if answer.State == explain.NotNode {
		leaks = append(leaks, fmt.Sprintf("%s, a node's address, is in no fenced network (fenced: %s)", a, brief(t.policy.Networks)))
	}
	for _, e := range answer.Exceptions {
		if e.State == verdict.Leaking {
			leaks = append(leaks, fmt.Sprintf("%s can be reached by %s: %s", a, e.Interface, e.Cause))
		}
	}
	for _, link := range t.fenced {
		if tried && reached(a, link) {
			leaks = append(leaks, fmt.Sprintf("a connection bound to %s really reaches %s, port 10250", link, a))
		}
	}
	if len(leaks) > 0 {
		r.Outcome, r.Message = check.Failed, strings.Join(leaks, "\n")
		r.Hint = fmt.Sprintf(`"routefence explain %s" shows each step`, a)
	} else {
		r.Name += fmt.Sprintf(" (%s)", where(answer))
	}
	x.results = append(x.results, r)
}

// where says what happens to packets for an address instead.
func where(a explain.Answer) string {
	if a.Interface != "" {
		return "it goes by " + a.Interface
	}
	return strings.ToLower(string(a.State)) + " here"
}

// reached tries to reach a kubelet by a socket that is bound to a fenced interface.
func reached(a netip.Addr, link string) bool {
	return dial.Try(selftest.Attempt{Addr: a, Protocol: selftest.TCP, Interface: link}).Step == selftest.Connected
}
