// Package e2e replays gardener/gardener#9604 on a real Kubernetes with a real VPN: without the fence, where kubectl works though the VPN
// is broken, and with it.
//
// It is a module of its own, so that none of what it needs becomes a dependency of routefence.
package e2e
