// Package check decides what a look at a shoot's tunnel from outside means: for each thing tried whether it worked, and for all of
// them together what is broken.
//
// Gardener's own check opens a port-forward to one pod, which any way to the kubelet satisfies (gardener/gardener#9604). It cannot
// tell a broken VPN from a healthy one where the seed's network reaches the nodes too, says nothing of pod and service networks, and
// does not know whose fault it is. This package is pure: package kube tries, cmd joins both with the fence's own test.
package check

// Group is what a check is about.
type Group string

// The groups, in the order in which they are tried and shown.
const (
	// Server: the shoot's API server itself, which is reached without the VPN.
	Server Group = "kube-apiserver"
	// Node: what the API server does by the nodes' kubelets.
	Node Group = "node network"
	// Pod: what it does by addresses of pods and services.
	Pod Group = "pod and service network"
	// Way: by which way packets to nodes leave this network namespace.
	Way Group = "way"
)

// Groups lists them all.
var Groups = []Group{Server, Node, Pod, Way}

// Kind is what was tried; the diagnosis goes by it.
type Kind string

// The kinds of checks.
const (
	Answers      Kind = "answers"
	NodesReady   Kind = "nodes-ready"
	PodsRunning  Kind = "vpn-shoot-running"
	PortForward  Kind = "port-forward"
	Logs         Kind = "logs"
	MetricsReady Kind = "metrics-server-ready"
	Available    Kind = "apiservice-available"
	Metrics      Kind = "metrics"
	Fence        Kind = "fence"
	Leak         Kind = "leak"
)

// Outcome is what came of a check.
type Outcome string

// The outcomes. Skipped checks prove nothing; Warned ones tell something that is no failure by itself.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Warned  Outcome = "warned"
	Skipped Outcome = "skipped"
)

// Result is one check and what came of it.
type Result struct {
	Group   Group   `json:"group"`
	Kind    Kind    `json:"kind"`
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	// Message says why, for all but passed ones.
	Message string `json:"message,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Milliseconds is how long it took, 0 for what took no time worth telling.
	Milliseconds int64 `json:"milliseconds,omitempty"`
}

// Report is all results with what they mean together.
type Report struct {
	Healthy   bool      `json:"healthy"`
	Diagnosis Diagnosis `json:"diagnosis"`
	Message   string    `json:"message"`
	Results   []Result  `json:"checks"`
}
