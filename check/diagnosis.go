package check

import (
	"fmt"
	"strings"
)

// Diagnosis is what is broken, in one word.
type Diagnosis string

// The diagnoses. More may be added, none renamed.
const (
	Healthy Diagnosis = "Healthy"
	// APIServerUnreachable: no API server answered, so nothing is known of the tunnel.
	APIServerUnreachable Diagnosis = "APIServerUnreachable"
	// NoTunnel: the shoot has no running pod of the VPN.
	NoTunnel Diagnosis = "NoTunnel"
	// VPNBroken: API servers answer and reach neither kubelets nor pods.
	VPNBroken Diagnosis = "VPNBroken"
	// NotThroughVPN: packets to nodes can leave by another way than the VPN, so that nothing that works proves the VPN.
	NotThroughVPN Diagnosis = "NotThroughVPN"
	// KubeletUnreachable: pods are reached and kubelets are not.
	KubeletUnreachable Diagnosis = "KubeletUnreachable"
	// MetricsServerDown: kubelets are reached, and the metrics-server is not ready by its own node's word.
	MetricsServerDown Diagnosis = "MetricsServerDown"
	// PodNetworkBroken: kubelets are reached, and a metrics-server that is ready is not.
	PodNetworkBroken Diagnosis = "PodNetworkBroken"
	// PartlyBroken: of several API servers, pods or nodes some work.
	PartlyBroken Diagnosis = "PartlyBroken"
	// Inconclusive: something could not be tried.
	Inconclusive Diagnosis = "Inconclusive"
)

// tally counts the outcomes of some checks.
type tally map[Outcome]int

func (t tally) none() bool { return t[Passed] == 0 && t[Failed] == 0 }
func (t tally) bad() bool  { return t[Failed] > 0 && t[Passed] == 0 }
func (t tally) part() bool { return t[Failed] > 0 && t[Passed] > 0 }

// count tallies the results of some kinds.
func count(results []Result, kinds ...Kind) tally {
	out := tally{}
	for _, r := range results {
		for _, k := range kinds {
			if r.Kind == k {
				out[r.Outcome]++
			}
		}
	}
	return out
}

// Conclude says what results mean together.
func Conclude(results []Result) Report {
	r := Report{Results: results}
	r.Diagnosis, r.Message = diagnose(results)
	r.Healthy = r.Diagnosis == Healthy
	return r
}

func diagnose(results []Result) (Diagnosis, string) {
	servers, forwards, running := count(results, Answers), count(results, PortForward, Logs), count(results, PodsRunning)
	metrics, way := count(results, Available, Metrics), count(results, Fence, Leak)
	leaks := ""
	if way[Failed] > 0 {
		leaks = "; besides, " + reasons(results, Fence, Leak)
	}
	switch {
	case servers[Passed] == 0:
		return APIServerUnreachable, "no API server answers, so nothing can be said of the tunnel: " + reasons(results, Answers) + leaks
	case running.bad():
		return NoTunnel, "the VPN does not run in the shoot: " + reasons(results, PodsRunning) + leaks
	case forwards.bad() && !metrics.none() && metrics[Failed] == 0:
		return KubeletUnreachable, "API servers reach pods, so the VPN is up, but not the kubelets: " + reasons(results, NodesReady, PortForward) + leaks
	case forwards.bad():
		return VPNBroken, "the API server answers and reaches no kubelet: " + reasons(results, PortForward) + leaks
	case way[Failed] > 0:
		return NotThroughVPN, "packets to nodes can leave by another way than the VPN: " + reasons(results, Fence, Leak)
	case servers.part() || forwards.part() || running.part():
		return PartlyBroken, "some of it works: " + reasons(results, Answers, PodsRunning, PortForward, Logs)
	case forwards.none():
		return Inconclusive, "whether a kubelet is reached could not be tried: " + reasons(results, NodesReady, PodsRunning, PortForward)
	case metrics[Failed] > 0 && count(results, MetricsReady)[Failed] > 0:
		return MetricsServerDown, "kubelets are reached, so the node network is well; the metrics-server is not ready: " + reasons(results, MetricsReady)
	case metrics[Failed] > 0:
		return PodNetworkBroken, "kubelets are reached, and the metrics-server, ready by its node's word, is not: " + reasons(results, Available, Metrics)
	case count(results, NodesReady, MetricsReady)[Failed] > 0:
		return Inconclusive, "all that was tried works, and still: " + reasons(results, NodesReady, MetricsReady)
	}
	return Healthy, healthy(metrics, way)
}

// healthy says what the good word covers: what was not tried is not vouched for.
func healthy(metrics, way tally) string {
	said := []string{"the API server reaches kubelets"}
	if !metrics.none() {
		said = append(said, "pods and services")
	}
	text := strings.Join(said, ", ")
	if way.none() {
		return text + "; by which way was not looked at, as this is not a control plane pod"
	}
	return text + ", and packets to nodes can only leave by the VPN"
}

// reason is why a check failed, in a text without its line in the list. What a request came to says nothing without the request.
func (r Result) reason() string {
	switch r.Kind {
	case NodesReady, PodsRunning, MetricsReady, Fence, Leak:
		return strings.ReplaceAll(r.Message, "\n", "; ")
	}
	return r.Name + ": " + r.Message
}

// mostReasons is how many reasons a summary gives; the results have them all.
const mostReasons = 3

// reasons lists why checks of some kinds failed or were skipped, each reason once.
func reasons(results []Result, kinds ...Kind) string {
	var out []string
	seen := map[string]bool{}
	for _, k := range kinds {
		for _, r := range results {
			if text := r.reason(); r.Kind == k && r.Outcome != Passed && r.Message != "" && !seen[text] {
				seen[text] = true
				out = append(out, text)
			}
		}
	}
	if more := len(out) - mostReasons; more > 0 {
		out = append(out[:mostReasons], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}
