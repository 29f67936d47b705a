package check

import (
	"strings"
	"testing"
)

// report builds results out of words: "+port-forward", "-metrics", "~fence" for skipped.
func report(words string) Report {
	group := map[Kind]Group{Answers: Server, NodesReady: Node, PodsRunning: Node, PortForward: Node, Logs: Node,
		MetricsReady: Pod, Available: Pod, Metrics: Pod, Fence: Way, Leak: Way}
	outcome := map[byte]Outcome{'+': Passed, '-': Failed, '~': Skipped}
	var results []Result
	for w := range strings.FieldsSeq(words) {
		k := Kind(w[1:])
		r := Result{Group: group[k], Kind: k, Name: "check of " + w[1:], Outcome: outcome[w[0]]}
		if r.Outcome != Passed {
			r.Message = "reason of " + w[1:]
		}
		results = append(results, r)
	}
	return Conclude(results)
}

const (
	up      = "+answers +nodes-ready +vpn-shoot-running "
	kubelet = "+port-forward +logs "
	pods    = "+metrics-server-ready +apiservice-available +metrics "
	fenced  = "+fence +leak "
)

// TestDiagnosis plants faults, alone and together, and wants the one at their root named, with its reason.
func TestDiagnosis(t *testing.T) {
	for name, c := range map[string]struct {
		results string
		want    Diagnosis
		reason  string
	}{
		"all well, in the pod":           {up + kubelet + pods + fenced, Healthy, "only leave by the VPN"},
		"all well, from outside":         {up + kubelet + pods + "~fence", Healthy, "not looked at"},
		"no metrics-server asked":        {up + kubelet + "~metrics-server-ready ~metrics " + fenced, Healthy, "reaches kubelets, and"},
		"API server down":                {"-answers ~fence", APIServerUnreachable, "reason of answers"},
		"API server down, fence missing": {"-answers -fence", APIServerUnreachable, "besides, reason of fence"},
		"one of two API servers down":    {"-answers " + up + kubelet + pods + fenced, PartlyBroken, "reason of answers"},
		"no vpn-shoot":                   {"+answers +nodes-ready -vpn-shoot-running +metrics-server-ready -metrics " + fenced, NoTunnel, "reason of vpn-shoot"},
		"VPN down":                       {up + "-port-forward ~logs +metrics-server-ready -apiservice-available -metrics " + fenced, VPNBroken, "reason of port-forward"},
		"VPN down, not noticed yet":      {up + "-port-forward ~logs +metrics-server-ready +apiservice-available -metrics " + fenced, VPNBroken, "reason of port-forward"},
		"VPN down, fence leaking":        {up + "-port-forward ~logs -metrics +fence -leak", VPNBroken, "besides, reason of leak"},
		"VPN down, pods not tried":       {up + "-port-forward ~logs ~metrics " + fenced, VPNBroken, "reason of port-forward"},
		"one of two kubelets":            {up + "-port-forward +port-forward +logs " + pods + fenced, PartlyBroken, "reason of port-forward"},
		"kubelet down":                   {"+answers -nodes-ready +vpn-shoot-running -port-forward ~logs " + pods + fenced, KubeletUnreachable, "reason of nodes-ready"},
		"logs alone":                     {up + "+port-forward -logs " + pods + fenced, PartlyBroken, "reason of logs"},
		"metrics-server down":            {up + kubelet + "-metrics-server-ready -apiservice-available -metrics " + fenced, MetricsServerDown, "reason of metrics-server-ready"},
		"pod network":                    {up + kubelet + "+metrics-server-ready -apiservice-available -metrics " + fenced, PodNetworkBroken, "reason of apiservice"},
		"fence missing":                  {up + kubelet + pods + "-fence -leak", NotThroughVPN, "reason of fence"},
		"leak":                           {up + kubelet + pods + "+fence -leak", NotThroughVPN, "reason of leak"},
		"leak, VPN down for pods":        {up + kubelet + "+metrics-server-ready -metrics +fence -leak", NotThroughVPN, "reason of leak"},
		"nothing could be listed":        {"+answers ~nodes-ready ~vpn-shoot-running ~metrics ~fence", Inconclusive, "reason of nodes-ready"},
		"nor asked":                      {"+answers ~nodes-ready ~vpn-shoot-running -metrics ~fence", Inconclusive, "reason of vpn-shoot"},
		"a node is not ready":            {"+answers -nodes-ready +vpn-shoot-running " + kubelet + pods + fenced, Inconclusive, "reason of nodes-ready"},
		"leak, nothing could be listed":  {"+answers ~nodes-ready ~vpn-shoot-running +fence -leak", NotThroughVPN, "reason of leak"},
	} {
		t.Run(name, func(t *testing.T) {
			r := report(c.results)
			if r.Diagnosis != c.want || !strings.Contains(r.Message, c.reason) {
				t.Errorf("%s: %s\nwant %s with %q", r.Diagnosis, r.Message, c.want, c.reason)
			}
			if r.Healthy != (c.want == Healthy) {
				t.Errorf("healthy: %v", r.Healthy)
			}
		})
	}
}

// TestHealthyNeedsAKubelet: of all subsets of good results, those without a kubelet reached are not called healthy.
func TestHealthyNeedsAKubelet(t *testing.T) {
	words := strings.Fields(up + pods + fenced)
	for set := range 1 << len(words) {
		var some []string
		for i, w := range words {
			if set&(1<<i) != 0 {
				some = append(some, w)
			}
		}
		if r := report(strings.Join(some, " ")); r.Healthy {
			t.Fatalf("%v: %s", some, r.Message)
		}
	}
}

func TestText(t *testing.T) {
	r := report(up + "-port-forward")
	r.Results[3].Hint, r.Results[0].Milliseconds = "look there", 12
	want := `kube-apiserver
--------------
√ check of answers (12 ms)

node network
------------
√ check of nodes-ready
√ check of vpn-shoot-running
× check of port-forward
    reason of port-forward
    hint: look there

VPNBroken: the API server answers and reaches no kubelet: check of port-forward: reason of port-forward
`
	if got := r.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
