// Command routefence keeps traffic to a shoot's nodes inside the VPN, for the network namespace it runs in.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes of the contract.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// exitError ends the program with a code. A nil Err prints nothing more.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage is a mistake in flags, arguments or environment.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		// What cobra itself finds wrong is a mistake on the command line.
		exit = &exitError{exitUsage, err}
	}
	if exit.err != nil {
		fmt.Fprintf(os.Stderr, "routefence: %s\n", oneLine(exit.err))
	}
	return exit.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "routefence",
		Short: "Keeps traffic to shoot nodes inside the VPN",
		Long: `routefence fences the node networks of a Gardener shoot in the network namespace it runs in: blackhole routes and
iptables rules see to it that traffic to nodes leaves by the VPN's devices or not at all, and a readiness endpoint
reports what the kernel really does.

Every flag --a-b of a command can also be given as ROUTEFENCE_A_B in the environment; the flag wins.
Exit codes: 0 as asked, 1 not so, 2 usage or configuration error, 3 (status) agent unreachable.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return &exitError{code: exitUsage}
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newRun(), newInit(), newStatus(), newExplain(), newSelftest(), newCheck(), newCleanup(), newVersion())
	for _, c := range root.Commands() {
		c.PreRunE = func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd, os.Environ()) }
	}
	return root
}
