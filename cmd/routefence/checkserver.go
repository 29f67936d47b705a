package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/routefence/routefence/check"
	"github.com/routefence/routefence/check/kube"
)

// metricsService is the one aggregated API that every shoot has. Its backend is a pod, which the API server reaches by the tunnel.
const metricsService = "v1beta1.metrics.k8s.io"

// server tries what one API server can do.
func (x *examination) server(ctx context.Context, s kube.Server) {
	ready := check.Result{Group: check.Server, Kind: check.Answers, Name: s.URL + " answers",
		Hint: "this way does not use the VPN: look at the kube-apiserver pods, their Service and the kubeconfig"}
	if !x.add(ctx, ready, s.Answers) {
		return
	}
	if !x.listed {
		x.list(ctx, s)
	}
	for _, p := range x.pods {
		x.kubelet(ctx, s, p)
	}
	x.add(ctx, check.Result{Group: check.Pod, Kind: check.Available, Name: fmt.Sprintf("%s: APIService %s is available", s.URL, metricsService),
		Hint: "kubectl get apiservice " + metricsService + " -o yaml; what it says may be half a minute old"},
		func(ctx context.Context) error { return s.Available(ctx, metricsService) })
	x.add(ctx, check.Result{Group: check.Pod, Kind: check.Metrics, Name: s.URL + ": the metrics-server answers",
		Hint: "the API server goes to the Service's or the pod's address: see the VPN's routes for the pod and service networks"}, s.Metrics)
}

// list asks for the objects, which are the same whichever server is asked. One that does not tell them leaves that to the next.
func (x *examination) list(ctx context.Context, s kube.Server) {
	nodes := x.ask(ctx, check.Result{Group: check.Node, Kind: check.NodesReady, Name: "all nodes are ready",
		Hint: "a kubelet that reports nothing is down, or cannot reach the API server: that is the other direction, which does not use the VPN"},
		func(ctx context.Context) (string, error) {
			nodes, err := s.Nodes(ctx)
			return x.readiness(nodes), err
		})
	pods := x.ask(ctx, check.Result{Group: check.Node, Kind: check.PodsRunning, Name: "vpn-shoot pods are running",
		Hint: "kubectl -n kube-system get pods -l app=vpn-shoot"},
		func(ctx context.Context) (string, error) {
			pods, err := s.Workloads(ctx, "app=vpn-shoot")
			return x.running(pods), err
		})
	metrics := x.ask(ctx, check.Result{Group: check.Pod, Kind: check.MetricsReady, Name: "the metrics-server is ready",
		Hint: "kubectl -n kube-system get pods -l k8s-app=metrics-server; its own node probes it, without the VPN"},
		func(ctx context.Context) (string, error) {
			pods, err := s.Workloads(ctx, "k8s-app=metrics-server")
			return serving(pods), err
		})
	x.listed = nodes && pods && metrics
}

// kubelet tries what goes to the kubelet of a pod's node.
func (x *examination) kubelet(ctx context.Context, s kube.Server, p kube.Workload) {
	logs := check.Result{Group: check.Node, Kind: check.Logs, Name: fmt.Sprintf("%s: log of %s", s.URL, p.Name),
		Hint: "the API server may hold on to an old connection to the kubelet that broke; it gives that up by itself after 45 seconds"}
	if !x.add(ctx, check.Result{Group: check.Node, Kind: check.PortForward,
		Name: fmt.Sprintf("%s: port-forward to %s on %s", s.URL, p.Name, p.Node),
		Hint: "the API server cannot reach the kubelet of that node (port 10250): see the VPN at both ends"},
		func(ctx context.Context) error { return s.Forward(ctx, p) }) {
		x.skip(logs, "needs the same kubelet as the port-forward")
		return
	}
	x.add(ctx, logs, func(ctx context.Context) error { return s.Logs(ctx, p) })
}

// readiness notes the nodes' addresses, and says what is wrong with nodes.
func (x *examination) readiness(nodes []kube.Node) string {
	if len(nodes) == 0 {
		return "there is no node, so there is nothing to reach"
	}
	var unready []string
	x.nodes = nil
	for _, n := range nodes {
		x.nodes = append(x.nodes, n.Addresses...)
		if !n.Ready {
			unready = append(unready, n.Name+": "+n.Message)
		}
	}
	return strings.Join(unready, "\n")
}

// running notes the pods of the VPN that are running, and says if there is none.
func (x *examination) running(pods []kube.Workload) string {
	found := len(pods)
	x.pods = slices.DeleteFunc(pods, func(p kube.Workload) bool { return p.Phase != "Running" })
	if len(x.pods) == 0 {
		return fmt.Sprintf("none of %d pods with the label app=vpn-shoot in kube-system is running", found)
	}
	return ""
}

// serving says if no pod of the metrics-server is ready.
func serving(pods []kube.Workload) string {
	if slices.ContainsFunc(pods, func(p kube.Workload) bool { return p.Ready }) {
		return ""
	}
	return fmt.Sprintf("none of %d pods with the label k8s-app=metrics-server in kube-system is ready", len(pods))
}
