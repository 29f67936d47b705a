// Package apiserver tests the API source against a real kube-apiserver and etcd, with the objects and CRDs of Gardener.
//
// It is a module of its own, so that none of them becomes a dependency of routefence.
package apiserver
