// Package ha proves the fence over the devices of Gardener's highly available VPN: bond0 over two taps, with
// bond0-ip6tnl0 on top. Many machines' kernels have no bonding, so its tests have the build tag "vm", and make test runs
// them in guests (see test/vm). It holds no code but tests.
package ha
