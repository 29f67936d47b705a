package selftest_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/selftest"
)

// free and bound are the two kinds of attempts.
var (
	free  = selftest.Attempt{Addr: netip.MustParseAddr("10.250.0.7"), Protocol: selftest.TCP}
	bound = selftest.Attempt{Addr: netip.MustParseAddr("10.250.0.7"), Protocol: selftest.TCP, Interface: "eth0"}
)

func outcome(s selftest.Step, err string) selftest.Outcome {
	return selftest.Outcome{Step: s, Error: err}
}

func TestJudge(t *testing.T) {
	translated := netip.MustParseAddr("242.0.0.7")
	for _, c := range []struct {
		e    selftest.Evidence
		want selftest.Result
		word string
	}{
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Untried, "EMFILE")}, selftest.Inconclusive, "EMFILE"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Untried, "EPERM"), Stopped: 1}, selftest.Inconclusive, "could not be tried"},

		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Unrouted, "EINVAL")}, selftest.Pass, "EINVAL"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Connected, ""), Egress: "tun0", Role: policy.Tunnel},
			selftest.Pass, "by the tunnel tun0, and was answered"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Unanswered, ""), Egress: "tun0", Role: policy.Tunnel},
			selftest.Pass, "no answer, is not the fence's business"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Sent, ""), Egress: "tun0", Role: policy.Tunnel, TranslatedTo: translated},
			selftest.Pass, "tun0, translated to 242.0.0.7"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Unanswered, ""), TranslatedTo: translated}, selftest.Pass, "no way there"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Refused, "ECONNREFUSED"), Sunk: 1, Egress: "lo"}, selftest.Pass, "refused there"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Connected, ""), Egress: "lo"}, selftest.Inconclusive, "in this namespace"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Sent, "")}, selftest.Inconclusive, "changed"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Refused, "ECONNREFUSED"), Egress: "eth0", Role: policy.Fenced, Stopped: 1},
			selftest.Fail, "routing sent it to eth0; the firewall stopped it (ECONNREFUSED)"},
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Refused, "ECONNREFUSED"), Egress: "eth0", Role: policy.Fenced},
			selftest.Fail, "LEAK"}, // the node's own reset
		{selftest.Evidence{Attempt: free, Outcome: outcome(selftest.Unanswered, ""), Egress: "eth1"}, selftest.Fail, "eth1, which is neither fenced nor a tunnel"},

		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Refused, "ECONNREFUSED"), Stopped: 1}, selftest.Pass, "refused at once (ECONNREFUSED)"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Unanswered, ""), Stopped: 1}, selftest.Pass, "dropped without an answer"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Refused, "ECONNREFUSED")}, selftest.Fail, "LEAK: it left by eth0"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Unanswered, "")}, selftest.Fail, "LEAK: it left by eth0"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Sent, "")}, selftest.Fail, "LEAK"},
		// Someone else's packet was counted, ours was not.
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Connected, ""), Stopped: 3}, selftest.Fail, "LEAK"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Sent, ""), Stopped: 3}, selftest.Fail, "LEAK"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Unrouted, "ENETUNREACH")}, selftest.Inconclusive, "would stop it"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Unrouted, "ENETUNREACH"), Open: "no chain ROUTEFENCE in filter"},
			selftest.Fail, "no chain ROUTEFENCE"},
		{selftest.Evidence{Attempt: bound, Outcome: outcome(selftest.Refused, "EPERM")}, selftest.Inconclusive, "EPERM"},
	} {
		got, why := selftest.Judge(c.e)
		if got != c.want || !strings.Contains(why, c.word) {
			t.Errorf("%+v:\n\t%s: %s\n\twant %s with %q", c.e, got, why, c.want, c.word)
		}
	}
}

func TestReportSumsUp(t *testing.T) {
	network := netip.MustParsePrefix("10.250.0.0/16")
	add := func(r *selftest.Report, a selftest.Attempt, s selftest.Step, stopped uint64) {
		r.Add(network, selftest.Find(selftest.Evidence{Attempt: a, Outcome: outcome(s, "E"), Stopped: stopped}))
	}
	var r selftest.Report
	add(&r, bound, selftest.Untried, 0)
	if r.Result != selftest.Inconclusive || r.Networks[0].Layers[selftest.Firewall] != selftest.Inconclusive {
		t.Errorf("only inconclusive: %+v", r)
	}
	add(&r, free, selftest.Unrouted, 0)
	add(&r, bound, selftest.Refused, 1)
	if r.Result != selftest.Pass || len(r.Networks) != 1 || r.Networks[0].Layers[selftest.Firewall] != selftest.Pass {
		t.Errorf("proofs beside inconclusive ones: %+v", r)
	}
	add(&r, bound, selftest.Connected, 0)
	add(&r, bound, selftest.Refused, 1)
	if l := r.Networks[0].Layers; r.Result != selftest.Fail || l[selftest.Firewall] != selftest.Fail || l[selftest.Routes] != selftest.Pass {
		t.Errorf("one failure: %+v", r)
	}
	if text := r.String(); !strings.HasPrefix(text, "10.250.0.0/16\n") || !strings.HasSuffix(text, "fail: 3 passed, 1 failed, 1 inconclusive\n") {
		t.Errorf("for people:\n%s", text)
	}
	var none selftest.Report
	if none.Problem("there is no %s", "fence"); none.Result != selftest.Fail || !strings.Contains(none.String(), "problem: there is no fence") {
		t.Errorf("a problem: %+v", none)
	}
}
