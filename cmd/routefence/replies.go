package main

import (
	"net/netip"
	"os"
	"strings"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/spf13/pflag"
)

// hostVariables are where the address of the pod's host may stand: Gardener sets the first in the VPN's containers.
var hostVariables = []string{"LOCAL_NODE_IP", "HOST_IP"}

// replyFlags say which connections are answered.
type replyFlags struct {
	replies string
	hosts   []string
}

func (f *replyFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.replies, "replies", "auto", "answer connections that come in over a fenced interface from node networks: auto (those networks that overlap with what the pod lives among), on or off")
	fs.StringArrayVar(&f.hosts, "host-ip", nil, "addresses of the host that the pod runs on, whose kubelet probes it (default "+strings.Join(hostVariables, " or ")+" of the environment)")
}

// into adds what the flags mean to an agent's configuration.
func (f *replyFlags) into(c *agent.Config) error {
	if err := command.OneOf("replies", f.replies, "auto", "on", "off"); err != nil {
		return err
	}
	c.Replies = agent.Replies(f.replies)
	for _, list := range f.hosts {
		for item := range strings.SplitSeq(list, ",") {
			a, err := netip.ParseAddr(strings.TrimSpace(item))
			if err != nil || a.Zone() != "" {
				return command.Usage("--host-ip=%s: %q is not an IP address (want one like 10.250.0.7)", list, item)
			}
			c.Hosts = append(c.Hosts, a.Unmap())
		}
	}
	if len(f.hosts) == 0 {
		c.Hosts = hostsFromEnvironment()
	}
	return nil
}

// hostsFromEnvironment takes what is an address and passes over the rest: these variables are not ours, and whoever set them may have
// meant something else.
func hostsFromEnvironment() []netip.Addr {
	for _, name := range hostVariables {
		var out []netip.Addr
		for item := range strings.SplitSeq(os.Getenv(name), ",") {
			if a, err := netip.ParseAddr(strings.TrimSpace(item)); err == nil {
				out = append(out, a.WithZone("").Unmap())
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}
