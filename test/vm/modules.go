package main

import (
	"path"
	"slices"
	"strings"
)

// wanted are the parts of the module tree that go into the guest; what they depend on follows.
var wanted = []string{
	"kernel/net/ipv4/", "kernel/net/ipv6/", "kernel/net/netfilter/", "kernel/net/packet/", "kernel/net/unix/", "kernel/net/netlink/",
	"kernel/drivers/net/bonding/", "kernel/drivers/net/dummy.ko", "kernel/drivers/net/tun.ko", "kernel/drivers/net/veth.ko",
	"kernel/drivers/net/macvlan.ko", "kernel/drivers/net/vxlan/", "kernel/net/bridge/bridge.ko",
}

// modules is a part of a module tree: its files, and its share of the tables modules.dep and modules.alias.
type modules struct {
	files                 []string
	dependencies, aliases string
}

// chooseModules takes the wanted modules and all that they need out of the tables of the whole tree.
func chooseModules(dependencies, aliases string) modules {
	chosen := map[string]bool{}
	for line := range strings.Lines(dependencies) {
		module, needs, _ := strings.Cut(line, ":")
		if slices.ContainsFunc(wanted, func(prefix string) bool { return strings.HasPrefix(module, prefix) }) {
			for _, file := range append(strings.Fields(needs), module) {
				chosen[file] = true
			}
		}
	}
	var m modules
	names := map[string]bool{}
	for line := range strings.Lines(dependencies) {
		if module, _, _ := strings.Cut(line, ":"); chosen[module] {
			m.files = append(m.files, module)
			m.dependencies += line
			names[moduleName(module)] = true
		}
	}
	for line := range strings.Lines(aliases) {
		if words := strings.Fields(line); len(words) == 3 && names[words[2]] {
			m.aliases += line
		}
	}
	return m
}

// moduleName is what the kernel calls the module of a file.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}
