package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/agent/health"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/firewall/xtables"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/routefence/routefence/shoot/file"
	"github.com/routefence/routefence/sockets"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"
)

func newRun() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Fence, watch, repair and report until SIGTERM or SIGINT; the fence stays",
		Long: `Run is the sidecar. It fences the node networks at once, follows their sources, repairs what others undo, and serves
/healthz, /startupz, /readyz, /state and /metrics. When it ends, for whatever reason, the fence stays as it is:
only "routefence cleanup" takes it away.

The fence covers the union of all sources; at least one of --node-networks, --shoot-file and --shoot is needed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.parse()
			if err != nil {
				return err
			}
			if f.dryRun {
				return dryRun(cmd.Context(), cmd.OutOrStdout(), c)
			}
			return runAgent(cmd.Context(), c)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// assembly is an agent with all of its edges.
type assembly struct {
	agent    *agent.Agent
	firewall *xtables.Kernel
	events   []agent.Events
	// passed is told of every pass. It may be set until the agent runs.
	passed func(time.Duration)
}

// sourcePoll is how often a file is read without an event.
const sourcePoll = 2 * time.Second

func assemble(c agentConfig) (*assembly, error) {
	r, err := rtnl.New()
	if err != nil {
		return nil, command.Fail(err)
	}
	conns, err := sockets.New()
	if err != nil {
		return nil, command.Fail(err)
	}
	x := xtables.New(c.firewall, nfnetlink.Conn{}, c.log)
	a := assembly{firewall: x, passed: func(time.Duration) {}}
	if e, err := rtnl.Subscribe(); err == nil {
		a.events = append(a.events, e)
	} else {
		c.log.Warn("no routing events: changes are only found by resync", zap.Error(err))
	}
	a.events = append(a.events, nfnetlink.Conn{}, xtables.Legacy{})
	c.Config.Passed = func(d time.Duration) { a.passed(d) }
	c.Config.Alone = new(claim).alone
	a.agent = agent.New(c.Config, agent.Kernel{Routes: r, Firewall: x, Connections: conns}, c.sources(), c.log)
	return &a, nil
}

func (c agentConfig) sources() []agent.Source {
	var out []agent.Source
	for _, s := range c.fixed {
		out = append(out, s)
	}
	if c.shootFile != "" {
		out = append(out, file.New(c.shootFile, sourcePoll, c.log))
	}
	if c.api != nil {
		out = append(out, c.api.sources(c.log)...)
	}
	return out
}

func runAgent(ctx context.Context, c agentConfig) error {
	defer func() { _ = c.log.Sync() }() // stderr may be a pipe that cannot sync
	a, err := assemble(c)
	if err != nil {
		return err
	}
	metrics := health.NewMetrics(buildLabels(), a.firewall)
	metrics.Watch(a.agent)
	a.passed = metrics.Passed
	c.log.Info("starting", zap.Any("version", buildLabels()), zap.String("listen", c.listen))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if err := serve(ctx, c.listen, health.Handler(a.agent, metrics)); err != nil {
			cancel(err)
		}
	}()
	if t := c.api.teller(a.agent, c.log); t != nil {
		go t.Run(ctx)
	}
	a.agent.Run(ctx, a.events...)
	<-stopped
	c.log.Info("stopped; the fence stays (routefence cleanup removes it)")
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return command.Fail(err)
	}
	return nil
}

// maxConnections bounds what clients that nobody authenticates can make the agent hold: memory and file descriptors, which the
// passes need as well.
const maxConnections = 256

func limited(l net.Listener) net.Listener { return netutil.LimitListener(l, maxConnections) }

// newServer ends connections on which nothing goes on, so that they do not use up the bound.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
}

// serve answers HTTP until ctx ends.
func serve(ctx context.Context, address string, h http.Handler) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w (choose another with --listen)", address, err)
	}
	s := newServer(h)
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(limited(l)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %s: %w", address, err)
	}
	return nil
}
