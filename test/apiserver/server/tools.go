//go:build tools

// Package server pins the programs of Kubernetes that the tests build, in a module of its own: their dependencies are neither
// those of routefence nor those of Gardener's types.
package server

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
