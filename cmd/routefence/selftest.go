package main

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/selftest"
	"github.com/spf13/cobra"
)

func newSelftest() *cobra.Command {
	var f fenceFlags
	var output string
	cmd := &cobra.Command{
		Use:   "selftest [ADDR...]",
		Short: "Really try to get out to node addresses, and say which layer of the fence held",
		Long: fmt.Sprintf(`Selftest tries to reach addresses of each node network past the fence, by TCP (port %d) and UDP (port %d): once leaving
the way to the kernel, which the routes have to stop or to send into a tunnel, and once from a socket bound to each fenced
interface, which the firewall has to stop. What stopped an attempt is told by the kernel's answer, its routing, and the counters
of the fence's own rules. No agent is needed, nothing is changed, and nothing is sent but to node networks: one SYN or one
datagram for each attempt, and where there is a leak what a TCP connection takes to come about and to be reset.

Without ADDR, one address of each network is tried, or two if a part of it fares worse than the rest; of more than %d
networks, that many. Node networks are those that the flags name, and those that the fence in the kernel is for.

Exit code 0: the fence held. 1: it did not, there is none, or nothing could be tried.`,
			selftest.TCP.Port(), selftest.UDP.Port(), selftest.MaxNetworks),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := command.OneOf("output", output, "text", "json"); err != nil {
				return err
			}
			addrs, err := addresses(args)
			if err != nil {
				return err
			}
			return runSelftest(cmd.OutOrStdout(), &f, addrs, output)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func addresses(args []string) ([]netip.Addr, error) {
	if len(args) > selftest.MaxAddrs {
		return nil, command.Usage("%d addresses: want %d at most, as each is really tried", len(args), selftest.MaxAddrs)
	}
	var out []netip.Addr
	for _, arg := range args {
		addr, err := netip.ParseAddr(arg)
		if err != nil || addr.Zone() != "" {
			return nil, command.Usage("%q is not an IP address (want one like 10.250.0.7)", arg)
		}
		out = append(out, addr.Unmap())
	}
	return out, nil
}

func runSelftest(out io.Writer, f *fenceFlags, addrs []netip.Addr, output string) error {
	c, err := f.parse()
	if err != nil {
		return err
	}
	t, err := newTrial(c)
	if err != nil {
		return command.Fail(err)
	}
	targets, err := t.targets(addrs)
	if err != nil {
		return err
	}
	if err := t.run(targets); err != nil {
		return command.Fail(err)
	}
	if err := write(out, t.report, output); err != nil {
		return command.Fail(err)
	}
	if t.report.Result != selftest.Pass {
		return command.Fail(nil)
	}
	return nil
}
