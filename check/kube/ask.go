package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
)

// Node is a node as far as a check needs it.
type Node struct {
	Name string
	// Addresses are its internal ones.
	Addresses []netip.Addr
	// Ready is what the node's condition says, with its message if that is not True.
	Ready   bool
	Message string
}

// Workload is a pod as far as a check needs it.
type Workload struct {
	Namespace, Name, Node, Phase string
	Containers                   []string
	Ready                        bool
}

type condition struct{ Type, Status, Reason, Message string }

// is returns whether a condition of a type is True, and why if not.
func is(conditions []condition, kind string) (bool, string) {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == "True", fmt.Sprintf("%s is %s: %s: %s", kind, c.Status, c.Reason, c.Message)
		}
	}
	return false, "it has no condition " + kind
}

// Answers asks whether the API server is ready.
func (s Server) Answers(ctx context.Context) error { return s.get(ctx, "/readyz", nil) }

// list asks for the items of a list, in pieces.
func list[T any](ctx context.Context, s Server, path string, query url.Values) ([]T, error) {
	var out []T
	query.Set("limit", "500")
	for {
		var piece struct {
			Metadata struct{ Continue string }
			Items    []T
		}
		if err := s.get(ctx, path+"?"+query.Encode(), &piece); err != nil {
			return nil, err
		}
		out = append(out, piece.Items...)
		if piece.Metadata.Continue == "" {
			return out, nil
		}
		query.Set("continue", piece.Metadata.Continue)
	}
}

type nodeItem struct {
	Metadata struct{ Name string }
	Status   struct {
		Addresses  []struct{ Type, Address string }
		Conditions []condition
	}
}

// Nodes lists the nodes.
func (s Server) Nodes(ctx context.Context) ([]Node, error) {
	items, err := list[nodeItem](ctx, s, "/api/v1/nodes", url.Values{})
	if err != nil {
		return nil, err
	}
	var out []Node
	for _, item := range items {
		n := Node{Name: item.Metadata.Name}
		n.Ready, n.Message = is(item.Status.Conditions, "Ready")
		for _, a := range item.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == "InternalIP" {
				n.Addresses = append(n.Addresses, addr)
			}
		}
		out = append(out, n)
	}
	return out, nil
}

type podItem struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct {
		NodeName   string
		Containers []struct{ Name string }
	}
	Status struct {
		Phase      string
		Conditions []condition
	}
}

// Workloads lists the pods of kube-system with a label.
func (s Server) Workloads(ctx context.Context, label string) ([]Workload, error) {
	items, err := list[podItem](ctx, s, "/api/v1/namespaces/kube-system/pods", url.Values{"labelSelector": {label}})
	if err != nil {
		return nil, err
	}
	var out []Workload
	for _, item := range items {
		w := Workload{Namespace: item.Metadata.Namespace, Name: item.Metadata.Name, Node: item.Spec.NodeName, Phase: item.Status.Phase}
		w.Ready, _ = is(item.Status.Conditions, "Ready")
		for _, c := range item.Spec.Containers {
			w.Containers = append(w.Containers, c.Name)
		}
		out = append(out, w)
	}
	return out, nil
}

func (w Workload) path() string {
	return "/api/v1/namespaces/" + url.PathEscape(w.Namespace) + "/pods/" + url.PathEscape(w.Name)
}

// Forward opens a port-forward to a pod and closes it again, as gardenlet's check of the tunnel does: it has succeeded when the API
// server switches protocols, which it does once the kubelet has. No byte goes to the pod.
//
// client-go's own port-forward looks at its context only after it has dialled, so that a check of 5 seconds lasts for 30; this one
// ends with its context.
func (s Server) Forward(ctx context.Context, w Workload) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+w.path()+"/portforward", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "SPDY/3.1")
	r.Header.Set("X-Stream-Protocol-Version", "portforward.k8s.io")
	answer, err := s.http.Do(r)
	if err != nil {
		return plain(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<12))
		return refusal(answer, body)
	}
	return nil
}

// Logs asks for the last line of a pod's log.
func (s Server) Logs(ctx context.Context, w Workload) error {
	query := url.Values{"tailLines": {"1"}, "limitBytes": {"4096"}}
	if len(w.Containers) > 0 {
		query.Set("container", w.Containers[0])
	}
	return s.get(ctx, w.path()+"/log?"+query.Encode(), nil)
}

// Available asks whether an APIService is available, by what the API server itself has found out some time ago.
func (s Server) Available(ctx context.Context, name string) error {
	var service struct {
		Status struct{ Conditions []condition }
	}
	if err := s.get(ctx, "/apis/apiregistration.k8s.io/v1/apiservices/"+url.PathEscape(name), &service); err != nil {
		return err
	}
	if ok, why := is(service.Status.Conditions, "Available"); !ok {
		return fmt.Errorf("%s", why)
	}
	return nil
}

// Metrics asks the metrics-server for something, through the API server.
func (s Server) Metrics(ctx context.Context) error {
	return s.get(ctx, "/apis/metrics.k8s.io/v1beta1/nodes?limit=1", nil)
}
