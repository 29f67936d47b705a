// Package agent keeps the fence standing: it turns every reason to look into one pass over the kernel, and what the pass
// read back into the state that everything else reports.
//
// It knows the kernel and the sources by small interfaces only, and decides nothing itself that a pure package can decide.
package agent

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"go.uber.org/zap"
)

// Routes is the kernel's routing.
type Routes interface {
	List() (routes.State, error)
	Apply([]routes.Change) error
}

// Firewall is the kernel's packet filter.
type Firewall interface {
	List() (firewall.Snapshot, error)
	Apply([]firewall.Change) error
}

// Connections are those of the namespace: of its sockets, and those that it forwards.
type Connections interface {
	// Sever ends those that are meant, by the address of their peer, the link their socket is bound to, or 0, and whether they came in.
	Sever(meant func(peer netip.Addr, link int, incoming bool) bool) (int, error)
	// Forget drops what the kernel has noted of those to peers that are meant, the forwarded ones above all.
	Forget(meant func(peer netip.Addr) bool) (int, error)
}

// Source says what the node networks are.
type Source interface {
	Report() shoot.Report
	// Run follows the source until ctx ends, and calls changed after each change of the report.
	Run(ctx context.Context, changed func())
}

// Events tell that something in the kernel may have changed.
type Events interface {
	Run(ctx context.Context, wake func())
}

// Readiness is what /readyz waits for.
type Readiness string

const (
	// WhenFenced is ready with the VPN down. It is the default, since a kube-apiserver pod that waits for the VPN can never become
	// ready: the VPN's other end starts through that very API server.
	WhenFenced Readiness = "fenced"
	// WhenTunneled also wants every network to leave by a tunnel.
	WhenTunneled Readiness = "tunneled"
)

// Translation says whether rewritings of node networks in nat OUTPUT are followed.
type Translation string

// The two choices for Translation.
const (
	FollowTranslation Translation = "auto"
	IgnoreTranslation Translation = "off"
)

// Lifelines says what to do about a node network that holds an address the pod lives by.
type Lifelines string

const (
	// KeepLifelines fences the network and leaves exactly that address reachable.
	KeepLifelines Lifelines = "keep"
	// RefuseLifelines does not fence the network, and is not ready.
	RefuseLifelines Lifelines = "refuse"
)

// Config is what the user chose.
type Config struct {
	Allow           []netip.Prefix
	Fenced, Tunnels policy.Patterns
	Translation     Translation
	// Translated are ranges that nat OUTPUT is expected to translate node networks into, for FollowTranslation.
	Translated []netip.Prefix
	ReadyWhen  Readiness
	Lifelines  Lifelines
	// Known are lifelines that the kernel does not tell: DNS servers, the API server.
	Known []policy.Lifeline
	// Replies says which connections are answered, none where it is "". Hosts are the addresses of the pod's host, for AutoReplies.
	Replies Replies
	Hosts   []netip.Addr
	// TunnelGrace is how long a tunnel may be gone before connections through it are ended. 0 leaves them alone.
	TunnelGrace time.Duration
	// Resync is the longest time between two passes.
	Resync time.Duration
	// Alone says whether no other process of ours writes in this namespace. Nil means so.
	Alone func() bool
	// Passed is told how long each pass took.
	Passed func(time.Duration)
}

// Kernel is all that the agent reads and writes.
type Kernel struct {
	Routes      Routes
	Firewall    Firewall
	Connections Connections
}

// Agent owns the fence of one network namespace.
type Agent struct {
	Config
	kernel  Kernel
	sources []Source
	log     *zap.Logger

	// wake holds at most one reason to look: ten thousand events are one pass.
	wake  chan struct{}
	state atomic.Pointer[State]

	// memory is touched by the goroutine that runs passes alone.
	memory memory
}

// New returns an agent that has not looked yet.
func New(c Config, k Kernel, sources []Source, log *zap.Logger) *Agent {
	a := &Agent{Config: c, kernel: k, sources: sources, log: log, wake: make(chan struct{}, 1)}
	a.state.Store(&State{Document: Document{Phase: Pending, ReadyWhen: c.ReadyWhen, Reason: NotVerified,
		Message: "the kernel has not been read yet", Networks: []Network{}, Sources: []Status{},
		Interfaces: Interfaces{Fenced: []string{}, Tunnels: []string{}}}, resync: c.Resync, passed: time.Now()})
	return a
}

// State returns what the last pass found. The value is not changed afterwards.
func (a *Agent) State() *State { return a.state.Load() }

// Wake asks for a pass soon. It never blocks.
func (a *Agent) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run makes a first pass at once, before any source is followed, and then one pass for every wake-up and at least one every
// Resync, until ctx ends. What stands in the kernel stays when it returns.
func (a *Agent) Run(ctx context.Context, events ...Events) {
	a.Pass()
	var running sync.WaitGroup
	for _, e := range events {
		running.Go(func() { e.Run(ctx, a.Wake) })
	}
	for _, s := range a.sources {
		running.Go(func() { s.Run(ctx, a.Wake) })
	}
	// What changed between the first pass and the subscriptions has woken nobody.
	a.Wake()
	for a.wait(ctx) {
		a.Pass()
	}
	running.Wait()
}

// wait returns true when the next pass is due, false when ctx has ended.
func (a *Agent) wait(ctx context.Context) bool {
	gap, limit := a.memory.pace(a.Resync)
	limit = a.memory.losses.remaining(limit, a.TunnelGrace, time.Now().Add(gap))
	rest := time.NewTimer(gap)
	defer rest.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-rest.C:
	}
	due := time.NewTimer(limit)
	defer due.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-a.wake:
	case <-due.C:
	}
	return true
}
