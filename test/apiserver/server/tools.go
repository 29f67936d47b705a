//go:build tools

// Package server pins the kube-apiserver that the tests build, in a module of its own: its dependencies are neither those
// of routefence nor those of Gardener's types.
package server

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
