package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/firewall/xtables"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/shoot/cluster"
)

// dryRun prints what the agent would write now. Everything but the changes is a comment, so that all of it can be pasted.
func dryRun(ctx context.Context, out io.Writer, c agentConfig) error {
	k, err := rtnl.New()
	if err != nil {
		return command.Fail(err)
	}
	if c.api != nil {
		c.api.cache = readOnly{c.api.cache}
	}
	sources := c.sources()
	if c.api != nil {
		hear(ctx, sources)
	}
	f := onlooker{xtables.New(c.firewall, nfnetlink.Conn{}, c.log)}
	changes, err := agent.New(c.Config, agent.Kernel{Routes: k, Firewall: f}, sources, c.log).Preview()
	if err != nil {
		return command.Fail(fmt.Errorf("dry run: %w", err))
	}
	for _, w := range changes.Warnings {
		fmt.Fprintf(out, "# warning: %s\n", w)
	}
	fence := fmt.Sprintf("the %s fence for %s", changes.Backend, brief(changes.Networks))
	if len(changes.Routes)+len(changes.Firewall) == 0 {
		fmt.Fprintf(out, "# %s stands: nothing to write\n", fence)
		return nil
	}
	fmt.Fprintf(out, "# would be written for %s:\n", fence)
	show(out, changes.Routes)
	show(out, changes.Firewall)
	return nil
}

// onlooker is a firewall that is only looked at: the agent's way to list it proves a backend first, by a write.
type onlooker struct{ *xtables.Kernel }

// List implements agent.Firewall.
func (o onlooker) List() (firewall.Snapshot, error) { return o.Read() }

// readOnly is a cache that keeps nothing new.
type readOnly struct{ cluster.Cache }

// Save implements cluster.Cache.
func (readOnly) Save(shoot.Statement) error { return nil }

// hearing is how long a dry run waits for the API server.
const hearing = 10 * time.Second

// hear follows sources until each has said something, or one that it cannot. An agent fences what it knows and goes on; a dry run
// has one look only.
func hear(ctx context.Context, sources []agent.Source) {
	ctx, cancel := context.WithTimeout(ctx, hearing)
	defer cancel()
	news := make(chan struct{}, 1)
	news <- struct{}{}
	var running sync.WaitGroup
	for _, s := range sources {
		running.Go(func() {
			s.Run(ctx, func() {
				select {
				case news <- struct{}{}:
				default:
				}
			})
		})
	}
	for waiting := true; waiting; {
		select {
		case <-ctx.Done():
			waiting = false
		case <-news:
			waiting = !spoken(sources)
		}
	}
	cancel()
	running.Wait()
}

func spoken(sources []agent.Source) bool {
	all := true
	for _, s := range sources {
		r := s.Report()
		if !r.Known && r.Err != nil {
			return true
		}
		all = all && r.Known
	}
	return all
}

// brief names networks in a line.
func brief(networks []netip.Prefix) string {
	const most = 8
	var names []string
	for _, n := range networks[:min(len(networks), most)] {
		names = append(names, n.String())
	}
	if more := len(networks) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
