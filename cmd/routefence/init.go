package main

import (
	"context"
	"fmt"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/spf13/cobra"
)

func newInit() *cobra.Command {
	var f agentFlags
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Install the fence, read it back, exit; for an init container",
		Long: `Init installs the fence for the node networks, reads it back from the kernel and exits: 0 if it stands, 1 if it does not
within --timeout. Whether the VPN is up does not matter. The flags are those of "routefence run".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.parse()
			if err != nil {
				return err
			}
			if timeout <= 0 {
				return usage("--timeout=%s: must be more than 0", timeout)
			}
			if f.dryRun {
				return dryRun(cmd.Context(), cmd.OutOrStdout(), c)
			}
			return install(cmd.Context(), c, timeout)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to try")
	return cmd
}

// install runs the agent until its fence has been read back once.
func install(ctx context.Context, c agentConfig, timeout time.Duration) error {
	a, err := assemble(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); a.agent.Run(ctx, a.events...) }()
	defer func() { cancel(); <-done }()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		s := a.agent.State()
		if s.Installed() {
			fmt.Println(s.At(time.Now()).Message)
			return nil
		}
		select {
		case <-ctx.Done():
			return &exitError{exitFailed, fmt.Errorf("the fence does not stand after %s: %s", timeout, why(s))}
		case <-poll.C:
		}
	}
}

func why(s *agent.State) string {
	d := s.At(time.Now())
	return fmt.Sprintf("%s: %s", d.Reason, d.Message)
}
