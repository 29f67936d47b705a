package main

import (
	"bufio"
	"net/netip"
	"os"
	"strings"

	"github.com/routefence/routefence/policy"
)

// resolvConf is where DNS servers are configured.
const resolvConf = "/etc/resolv.conf"

// knownLifelines returns what the pod lives by and the kernel does not tell: its DNS servers and its API server.
func knownLifelines() []policy.Lifeline {
	out := nameservers(resolvConf)
	if addr, err := netip.ParseAddr(os.Getenv("KUBERNETES_SERVICE_HOST")); err == nil {
		out = append(out, policy.Lifeline{Addr: addr.Unmap(), Name: "API server (KUBERNETES_SERVICE_HOST)"})
	}
	return out
}

func nameservers(path string) []policy.Lifeline {
	f, err := os.Open(path)
	if err != nil {
		return nil // without the file there is no DNS server to lose
	}
	defer f.Close()
	var out []policy.Lifeline
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(words[1]); err == nil {
			out = append(out, policy.Lifeline{Addr: addr.WithZone("").Unmap(), Name: "DNS server (" + path + ")"})
		}
	}
	return out
}
