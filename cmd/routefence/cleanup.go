package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/firewall/xtables"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
)

func newCleanup() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove all that routefence owns from this network namespace, and nothing else",
		Long: `Cleanup takes the fence away: rules, routes and link groups first, the firewall last, in both families and both iptables
backends. It finds what is routefence's by the marks in the kernel and leaves everything else as it is. It may be repeated.
If there are rules that it cannot read, it says so and removes nothing.
An agent that still runs will put its fence back: stop it first.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cleanup(cmd.OutOrStdout()); err != nil {
				return command.Fail(err)
			}
			return nil
		},
	}
}

// cleanup opens the firewall only once the routes are gone, and reads back what is left in the end. The routes go only if the firewall
// can follow as a whole: half a fence would refuse what nothing explains any more.
func cleanup(out io.Writer) error {
	r, err := rtnl.New()
	if err != nil {
		return err
	}
	x := xtables.New(xtables.Auto, nfnetlink.Conn{}, zap.NewNop())
	chains, err := readWhole(x)
	if err != nil {
		return fmt.Errorf("%w; nothing was removed", err)
	}
	state, err := r.List()
	if err != nil {
		return err
	}
	routing := routes.Remove(state)
	show(out, routing)
	if err := r.Apply(routing); err != nil {
		return fmt.Errorf("%w; the firewall was left in place", err)
	}
	filtering := firewall.Remove(chains)
	show(out, filtering)
	if err := x.Apply(filtering); err != nil {
		return err
	}
	if len(routing)+len(filtering) == 0 {
		fmt.Fprintln(out, "nothing of routefence's is here")
	}
	return remains(r, x)
}

// readWhole reads the firewall, and fails if a part that may be ours stays unseen: it would be taken for gone.
func readWhole(x *xtables.Kernel) (firewall.Snapshot, error) {
	chains, err := x.Read()
	return chains, errors.Join(append(chains.Unseen, err)...)
}

// remains says what is still, or again, there.
func remains(r *rtnl.Kernel, x *xtables.Kernel) error {
	state, err := r.List()
	if err != nil {
		return err
	}
	chains, err := readWhole(x)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range firewall.Remove(chains) {
		if kept, ok := c.(firewall.Kept); ok {
			errs = append(errs, fmt.Errorf("chain %s of %s %s stays, as others use it: %s", kept.Chain, kept.Backend, kept.Table,
				strings.Join(kept.Rules, "; ")))
			continue
		}
		errs = append(errs, fmt.Errorf("still there: %s", command.OneLine(errors.New(c.String()))))
	}
	for _, c := range routes.Remove(state) {
		errs = append(errs, fmt.Errorf("still there (does an agent run?): %s", c))
	}
	return errors.Join(errs...)
}

func show[T fmt.Stringer](out io.Writer, changes []T) {
	for _, c := range changes {
		fmt.Fprintln(out, c)
	}
}
