package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/spf13/cobra"
)

func newInit() *cobra.Command {
	var f agentFlags
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Install the fence, read it back, exit; for an init container",
		Long: `Init installs the fence for the node networks, reads it back from the kernel and exits: 0 if it stands and lets nothing
out, 1 if not within --timeout. It waits for every source to be read once. Whether the VPN is up does not matter. The flags are those of "routefence run".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.parse()
			if err != nil {
				return err
			}
			if timeout <= 0 {
				return command.Usage("--timeout=%s: must be more than 0", timeout)
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

// install runs the agent until its fence has been read back once and works.
func install(ctx context.Context, c agentConfig, timeout time.Duration) error {
	// It lives for a moment only, and pods wait for it: with ten thousand networks collecting garbage took an eighth of that.
	debug.SetGCPercent(400)
	// Before its first program a Go process finds out, by starting one, whether the kernel has file descriptors for processes. Meanwhile
	// there is something else to do.
	go func() {
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Release()
		}
	}()
	a, err := assemble(c)
	if err != nil {
		return err
	}
	// Nearly always the first pass is all there is to do.
	if s := a.agent.Pass(); c.done(s) {
		fmt.Println(standing(s))
		return nil
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
		if c.done(s) {
			fmt.Println(standing(s))
			return nil
		}
		select {
		case <-ctx.Done():
			return command.Fail(fmt.Errorf("the fence does not stand after %s: %s", timeout, c.why(a.agent.State())))
		case <-poll.C:
		}
	}
}

func (c agentConfig) done(s *agent.State) bool { return s.Installed() && len(c.unmet(s)) == 0 }

// unmet returns what keeps init from being done. Readiness may want more: a tunnel, or that every item of a source is good.
func (c agentConfig) unmet(s *agent.State) []agent.Check {
	return slices.DeleteFunc(s.Ready(time.Now()), func(check agent.Check) bool {
		return check.Err == nil || !c.awaits(s, check.Name)
	})
}

// awaits reports whether init waits for a check of readiness. Rules alone are no fence: they may guard an interface that is not there.
func (c agentConfig) awaits(s *agent.State, check string) bool {
	switch check {
	case "verified", "networks", "kernel-read", "no-leak", "interfaces":
		return true
	}
	if source, ok := strings.CutPrefix(check, "source-"); ok {
		return c.unread(s, source)
	}
	return strings.HasPrefix(check, "routes-") || strings.HasPrefix(check, "firewall-")
}

// unread reports whether a source that is in trouble has named nothing yet, so that what it will name is not fenced. A flag and the
// environment say at once all that they ever will.
func (c agentConfig) unread(s *agent.State, source string) bool {
	if slices.ContainsFunc(c.fixed, func(f fixedSource) bool { return f.report.Name == source }) {
		return false
	}
	return slices.ContainsFunc(s.Sources, func(status agent.Status) bool { return status.Name == source && len(status.Networks) == 0 })
}

// standing says that the fence stands, and what is wrong all the same.
func standing(s *agent.State) string {
	d := s.At(time.Now())
	if d.Ready {
		return d.Message
	}
	return "the fence stands, and still: " + d.Message
}

// why names what is unmet, each trouble once: several checks may fail for the same.
func (c agentConfig) why(s *agent.State) string {
	var out []string
	said := map[string]bool{}
	for _, check := range c.unmet(s) {
		if trouble := check.Err.Error(); !said[trouble] {
			said[trouble] = true
			out = append(out, fmt.Sprintf("%s: %s", check.Name, trouble))
		}
	}
	if len(out) > 0 {
		return strings.Join(out, "; ")
	}
	d := s.At(time.Now())
	return fmt.Sprintf("%s: %s", d.Reason, d.Message)
}
