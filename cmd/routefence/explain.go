package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/explain"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/firewall/xtables"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/routefence/routefence/shoot/file"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

func newExplain() *cobra.Command {
	var f fenceFlags
	var output string
	cmd := &cobra.Command{
		Use:   "explain ADDR",
		Short: "Say where a packet to ADDR would go, and why, from the kernel alone",
		Long: `Explain reads rules, routes, links and chains from the kernel and follows a packet to ADDR through them. No agent is
needed. Node networks are those that the flags name, and those that the fence in the kernel is for.

Exit code 0: it leaves by the tunnel, is blocked, or is no node address. 1: it leaks.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := command.OneOf("output", output, "text", "json"); err != nil {
				return err
			}
			addr, err := netip.ParseAddr(args[0])
			if err != nil || addr.Zone() != "" {
				return command.Usage("%q is not an IP address (want one like 10.250.0.7)", args[0])
			}
			return runExplain(cmd.OutOrStdout(), &f, addr.Unmap(), output)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func runExplain(out io.Writer, f *fenceFlags, addr netip.Addr, output string) error {
	c, err := f.parse()
	if err != nil {
		return err
	}
	k, err := rtnl.New()
	if err != nil {
		return command.Fail(err)
	}
	state, err := k.List()
	if err != nil {
		return command.Fail(err)
	}
	chains, err := xtables.New(c.firewall, nfnetlink.Conn{}, zap.NewNop()).Read()
	if err != nil {
		return command.Fail(err)
	}
	networks := slices.Concat(c.given(), state.Adopted(), chains.Adopted())
	allow := append(c.allow, state.Allowed()...)
	p := policy.New(networks, allow, c.fenced, c.tunnels)
	if c.lifelines == agent.KeepLifelines {
		p = p.Keep(append(state.Lifelines(p), knownLifelines()...))
	}
	var translations []policy.Translation
	if c.translation == agent.FollowTranslation {
		translations = chains.Translations(p)
	}
	answer := explain.Address(addr, p, state, chains, translations)
	answer.Kernel = k.Get(addr)
	if err := write(out, answer, output); err != nil {
		return command.Fail(err)
	}
	if answer.Leaks() {
		return command.Fail(nil)
	}
	return nil
}

// given returns the networks that the flags name.
func (c fenceConfig) given() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range c.fixed {
		out = append(out, s.Report().Networks...)
	}
	if c.shootFile != "" {
		out = append(out, file.New(c.shootFile, sourcePoll, zap.NewNop()).Report().Networks...)
	}
	return out
}

// write prints an answer in the form that -o asks for.
func write(out io.Writer, answer fmt.Stringer, output string) error {
	if output == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(answer)
	}
	_, err := fmt.Fprint(out, answer)
	return err
}
