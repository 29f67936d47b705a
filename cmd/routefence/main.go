// Command routefence keeps traffic to a shoot's nodes inside the VPN, for the network namespace it runs in.
package main

import (
	"os"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/spf13/cobra"
)

// exitUnreachable is what "status" says of an agent that does not answer. The other exit codes are those of package command.
const exitUnreachable = 3

func main() { command.Main(newRoot()) }

func newRoot() *cobra.Command {
	root := command.Root(&cobra.Command{
		Use:   "routefence",
		Short: "Keeps traffic to shoot nodes inside the VPN",
		Long: `routefence fences the node networks of a Gardener shoot in the network namespace it runs in: blackhole routes and
iptables rules see to it that traffic to nodes leaves by the VPN's devices or not at all, and a readiness endpoint
reports what the kernel really does.

Every flag --a-b of a command can also be given as ROUTEFENCE_A_B in the environment; the flag wins.
Exit codes: 0 as asked, 1 not so, 2 usage or configuration error, 3 (status) agent unreachable.`,
	}, newRun(), newInit(), newStatus(), newExplain(), newSelftest(), newCheck(), newCleanup(), newVersion())
	for _, c := range root.Commands() {
		c.PreRunE = func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd, os.Environ()) }
	}
	return root
}
