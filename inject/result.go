package inject

// Result is what Mutate made of an object.
type Result struct {
	// Object is the object to use from now on. It shares nothing with the argument.
	Object map[string]any
	// Outcome says what was done.
	Outcome Outcome
	// Reason says why an object was left alone.
	Reason Reason
	// Message is one sentence for people.
	Message string
	// Warnings are for whoever sent the object.
	Warnings []string
}

// Outcome is what was done to an object.
type Outcome string

const (
	// Injected objects had no fence, or another one.
	Injected Outcome = "Injected"
	// Unchanged objects have the very fence already.
	Unchanged Outcome = "Unchanged"
	// LeftAlone objects are not to be fenced.
	LeftAlone Outcome = "LeftAlone"
)

// Reason is why an object was left alone.
type Reason string

const (
	// OtherKind is neither Deployment, StatefulSet nor Pod.
	OtherKind Reason = "OtherKind"
	// NotControlPlane is neither a kube-apiserver nor a vpn-seed-server.
	NotControlPlane Reason = "NotControlPlane"
	// OptedOut says so itself, by label or annotation.
	OptedOut Reason = "OptedOut"
	// HostNetwork pods live in the node's network namespace, where a fence would cut off everybody else.
	HostNetwork Reason = "HostNetwork"
	// NoVPN is a kube-apiserver without VPN: that of a workerless shoot.
	NoVPN Reason = "NoVPN"
	// VirtualGarden is the kube-apiserver of a garden, which has no nodes.
	VirtualGarden Reason = "VirtualGarden"
	// SelfHosted is a control plane on the shoot's own nodes, without VPN.
	SelfHosted Reason = "SelfHosted"
	// Deleted objects are on their way out.
	Deleted Reason = "Deleted"
	// NoNetworks says that the pod should be fenced, but no node network is known: its agent would never be ready.
	NoNetworks Reason = "NoNetworks"
)
