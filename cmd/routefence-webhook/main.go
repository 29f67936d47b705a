// Command routefence-webhook puts the fence into control plane pods: as an admission webhook, or as a filter for manifests.
package main

import (
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/spf13/cobra"
)

func main() { command.Main(newRoot()) }

func newRoot() *cobra.Command {
	return command.Root(&cobra.Command{
		Use:   "routefence-webhook",
		Short: "Puts the fence into kube-apiserver and vpn-seed-server pods",
		Long: `routefence-webhook puts routefence into the pods of Gardener control planes that have something to do with the VPN, as their first
container, and checks whether a Shoot's networks can be fenced.

Exit codes: 0 as asked, 1 not so, 2 usage error.`,
	}, newServe(), newInject(), newLint(), newVersion())
}
