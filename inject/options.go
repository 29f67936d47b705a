package inject

import (
	"net/netip"
	"strconv"
	"strings"
)

// Options say what the containers are like, where annotations of the object do not say otherwise. Only Image is required.
type Options struct {
	// Image is routefence's.
	Image string
	// PullPolicy is IfNotPresent if empty.
	PullPolicy string
	// Namespace is where the object goes if it does not say so itself.
	Namespace string

	// Source is where the container gets the node networks from; PodSource if empty. What the pod's own VPN containers have in
	// SHOOT_NODE_NETWORKS is always taken as well: the fence covers the union.
	Source Source
	// Networks are further node networks that are known now, such as those that the namespace's Cluster names. Where the pod has them
	// already they make no difference, so the result is the same whether the Cluster could be read or not.
	Networks []netip.Prefix
	// Cluster is the object that APISource watches; the namespace if empty.
	Cluster string

	// Form is NativeSidecar if empty. See FormFor.
	Form Form
	// Firewall is the agent's --firewall: auto (if empty), nft or legacy. Legacy needs NET_RAW and a writable lock file.
	Firewall string
	// Resources replace single values of DefaultResources.
	Resources Resources
	// LogLevel is the agent's --log-level.
	LogLevel string
	// ReadyWhen is the agent's --ready-when. kube-apiserver pods are always ready when fenced: the VPN's other end starts through them.
	ReadyWhen string

	// Enforce is the Pod Security level that the namespace enforces, for a warning.
	Enforce string
}

// Source is where the container gets the node networks from: PodSource, APISource, or "configmap/NAME" or "configmap/NAME/KEY".
type Source string

const (
	// PodSource takes what is known at injection: SHOOT_NODE_NETWORKS of the pod's own containers, and Options.Networks.
	PodSource Source = "pod"
	// APISource watches the Cluster. The pod needs rights, a token and a way to the API server; the last two are injected.
	APISource Source = "api"
	// ConfigMapSource is the prefix of a source that follows a ConfigMap's key (DefaultKey if not named), mounted as a volume.
	ConfigMapSource = "configmap/"
	// DefaultKey is what the key of a ConfigMap is called if nobody says so.
	DefaultKey = "nodes"
)

// Form is how the fence gets in front of the other containers.
type Form string

const (
	// NativeSidecar is an init container with restartPolicy Always, which Kubernetes has since 1.29.
	NativeSidecar Form = "native"
	// Pair is an init container that ends, and a container beside the others. Between the two nobody watches the fence that stands.
	Pair Form = "pair"
)

// FormFor returns the form for a Kubernetes server, from the two halves of its version as it writes them ("1", "28+"). A version that
// cannot be read is taken for a new one.
func FormFor(major, minor string) Form {
	n, err := strconv.Atoi(strings.TrimRight(minor, "+"))
	if major == "1" && err == nil && n < 29 {
		return Pair
	}
	return NativeSidecar
}

// Resources are requests and limits as Kubernetes writes quantities. All four are always set: a quota would refuse the pod otherwise.
type Resources struct {
	CPURequest, CPULimit, MemoryRequest, MemoryLimit string
}
