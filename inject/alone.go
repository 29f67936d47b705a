package inject

import "fmt"

// sentences say for each reason why an object was left alone.
var sentences = map[Reason]string{
	NotControlPlane: "is neither kube-apiserver nor vpn-seed-server",
	OptedOut:        "declines by " + InjectKey,
	HostNetwork:     "uses the node's network, where a fence would cut off everything else on the node",
	NoVPN:           "has no VPN: no egress selector and no VPN client",
	VirtualGarden:   "belongs to a garden, which has no nodes",
	SelfHosted:      "runs on the shoot's own nodes, without VPN",
	Deleted:         "is being deleted",
	NoNetworks: "knows no node network (no container has SHOOT_NODE_NETWORKS, and the Cluster names none), so its agent would never be ready; " +
		"set spec.networking.nodes of the Shoot, or " + sourceKey,
}

// refrain leaves the pod alone, and warns where someone would wonder.
func (w *workload) refrain(why Reason, wanted bool) Result {
	r := Result{Outcome: LeftAlone, Reason: why, Message: sentences[why]}
	candidate := wanted || w.role() != stranger
	switch why {
	case HostNetwork, OptedOut, NoNetworks:
		if candidate {
			r.Warnings = []string{fmt.Sprintf("not fenced: %s %s %s", w.kind, w.name, r.Message)}
		}
	}
	return r
}

// doubts warns of what will not work as one might think.
func (s *settings) doubts() {
	if s.Enforce == "baseline" || s.Enforce == "restricted" {
		s.warn("the namespace enforces Pod Security level %s, which forbids NET_ADMIN, so the pods will be refused: "+
			"label it pod-security.kubernetes.io/enforce=privileged, as gardenlet does", s.Enforce)
	}
	if s.Form == Pair {
		s.warn("form pair: the fence stands before other containers start, and is watched only once they do; Kubernetes 1.29 and later need no pair")
	}
	if !s.known.any {
		s.warn("no node network is known yet: no other container starts before source %s names one", s.Source)
	}
}
