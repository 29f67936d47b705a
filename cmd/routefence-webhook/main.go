// Command routefence-webhook puts the fence into control plane pods: as an admission webhook, or as a filter for manifests.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes: as asked, not so, and a mistake in what was given.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// exitError ends the program with a code. A nil err prints nothing more.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage is a mistake in flags or arguments.
func usage(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
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
		fmt.Fprintf(errs, "routefence-webhook: %s\n", strings.ReplaceAll(exit.err.Error(), "\n", "; "))
	}
	return exit.code
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "routefence-webhook",
		Short: "Puts the fence into kube-apiserver and vpn-seed-server pods",
		Long: `routefence-webhook puts routefence into the pods of Gardener control planes that have something to do with the VPN, as their first
container, and checks whether a Shoot's networks can be fenced.

Exit codes: 0 as asked, 1 not so, 2 usage error.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return &exitError{code: exitUsage}
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newServe(), newInject(), newLint(), newVersion())
	return root
}
