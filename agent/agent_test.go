package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// bench is an agent on fakes.
type bench struct {
	*Agent
	r       *fakeRoutes
	f       *fakeFirewall
	src     *fakeSource
	logs    *observer.ObservedLogs
	severed fakeConnections
}

func networks(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func newBench(list ...string) *bench {
	core, logs := observer.New(zap.InfoLevel)
	b := &bench{logs: logs, r: &fakeRoutes{}, f: &fakeFirewall{}, src: &fakeSource{changed: make(chan struct{})}}
	b.src.report = shoot.Report{Name: "test", Networks: networks(list...), Known: len(list) > 0}
	b.f.networks = func() []netip.Prefix { return append(b.src.report.Networks, b.memory.adopted...) }
	b.r.state.Links = []routes.Link{{Index: 1, Name: "lo", Up: true}, {Index: 2, Name: "eth0", Up: true}}
	for _, f := range policy.Families {
		b.r.state.Rules = append(b.r.state.Rules, routes.Rule{Family: f, Priority: 32766, Action: routes.ActLookup, Table: routes.TableMain})
	}
	b.r.state.Routes = []routes.Route{{Family: policy.IPv4, Table: routes.TableMain, Dst: netip.MustParsePrefix("0.0.0.0/0"),
		Type: routes.Unicast, Hops: []routes.Hop{{Link: 2}}}}
	b.Agent = New(Config{Fenced: policy.Patterns{"eth0"}, Tunnels: policy.Patterns{"tun0"}, ReadyWhen: WhenFenced, Translation: IgnoreTranslation,
		Resync: 10 * time.Second, Passed: func(time.Duration) {}}, Kernel{b.r, b.f, &b.severed}, []Source{b.src}, zap.New(core))
	return b
}

func (b *bench) document() Document { return b.State().At(time.Now()) }

func TestFirstPassFencesAndSecondWritesNothing(t *testing.T) {
	b := newBench("10.250.0.0/16", "fd00:250::/48")
	b.Pass()
	d := b.document()
	if !d.Ready || d.Reason != ReasonFenced || d.Phase != Blocked {
		t.Fatalf("after the first pass: %+v", d)
	}
	writes, lines := b.r.writes+b.f.writes, b.logs.Len()
	b.Pass()
	if again := b.r.writes + b.f.writes; again != writes {
		t.Errorf("the second pass wrote %d times", again-writes)
	}
	if b.logs.Len() != lines {
		t.Errorf("the second pass logged %v", b.logs.All()[lines:])
	}
}

func TestNothingIsKnownNothingIsTouched(t *testing.T) {
	b := newBench()
	b.r.state.Rules = append(b.r.state.Rules, routes.Rule{Family: policy.IPv4, Priority: 97, Protocol: routes.Protocol, Action: routes.ActLookup, Table: routes.Table})
	b.src.report.Err = errors.New("read /etc/shoot.yaml: no such file")
	b.Pass()
	d := b.document()
	if d.Ready || d.Phase != Pending || d.Reason != NoNodeNetworks || !strings.Contains(d.Message, "no such file") {
		t.Errorf("got %+v", d)
	}
	if b.r.writes+b.f.writes != 0 {
		t.Errorf("%d writes although nothing is known", b.r.writes+b.f.writes)
	}
	if s := b.State(); s.Started()[0].Err == nil {
		t.Error("started with nothing known")
	}
}

// TestRestartWithoutSourceKeepsTheFence: invariant 1. What an earlier process fenced is all there is to go by.
func TestRestartWithoutSourceKeepsTheFence(t *testing.T) {
	old := newBench("10.250.0.0/16")
	old.Pass()
	b := newBench()
	b.r, b.f = old.r, old.f
	b.kernel.Routes, b.kernel.Firewall = old.r, old.f
	b.src.report.Err = errors.New("unreachable")
	b.f.networks = func() []netip.Prefix { return networks("10.250.0.0/16") }
	b.Pass()
	d := b.document()
	if len(d.Networks) != 1 || d.Networks[0].CIDR != "10.250.0.0/16" || d.Networks[0].Sources[0] != kernelSource {
		t.Errorf("networks %+v", d.Networks)
	}
	if d.Ready || d.Reason != SourceUnavailable {
		t.Errorf("ready %v, reason %s: %s", d.Ready, d.Reason, d.Message)
	}
	b.src.report = shoot.Report{Name: "test", Networks: networks("10.251.0.0/16"), Known: true}
	b.f.networks = func() []netip.Prefix { return b.src.report.Networks }
	b.Pass()
	if d := b.document(); len(d.Networks) != 1 || d.Networks[0].CIDR != "10.251.0.0/16" || !d.Ready {
		t.Errorf("once the source has spoken: %+v", d)
	}
}

func TestReadinessIsALease(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Pass()
	s := b.State()
	if !s.At(time.Now()).Ready {
		t.Fatal("not ready")
	}
	if d := s.At(time.Now().Add(31 * time.Second)); d.Ready || d.Reason != NotVerified {
		t.Errorf("31 s later: ready %v, %s", d.Ready, d.Reason)
	}
	if s.Live(time.Now().Add(61 * time.Second))[0].Err == nil {
		t.Error("61 s later: still live")
	}
}

// TestFaults: whatever fails, the state says so, the loop lives, and what stands is not weakened.
func TestFaults(t *testing.T) {
	fault := errors.New("the fault")
	for name, c := range map[string]struct {
		inject func(b *bench)
		reason Reason
	}{
		"routes cannot be listed":    {func(b *bench) { b.r.listErr = fault }, NotVerified},
		"firewall cannot be listed":  {func(b *bench) { b.f.listErr = fault }, NotVerified},
		"routes cannot be written":   {func(b *bench) { b.r.applyErr = fault }, LayerMissing},
		"firewall cannot be written": {func(b *bench) { b.f.applyErr = fault }, LayerMissing},
		"one family cannot be read": {func(b *bench) {
			b.f.snapshot.Unread = map[policy.Family]error{policy.IPv4: fault}
			b.f.applyErr = fault
		}, NotVerified},
		"source has a bad item": {func(b *bench) {
			b.src.report.Err = &policy.InvalidNetworkError{Item: "10.300.0.0/16", Err: fault}
		}, InvalidNetwork},
		"source is away": {func(b *bench) { b.src.report.Err = fault }, SourceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench("10.250.0.0/16")
			c.inject(b)
			b.Pass()
			d := b.document()
			if d.Ready || d.Reason != c.reason || !strings.Contains(d.Message, "the fault") {
				t.Errorf("ready %v, reason %s, message %q; want %s", d.Ready, d.Reason, d.Message, c.reason)
			}
			if n := strings.Count(d.Message, "the fault"); n > 2 {
				t.Errorf("the message tells the fault %d times: %s", n, d.Message)
			}
			if err := b.State().Live(time.Now())[0].Err; err != nil {
				t.Errorf("not live: %v", err)
			}
		})
	}
}

// TestOneFailedListDoesNotEndReadiness: the lease holds what was read back, an interrupted dump must not take an API
// server out of service.
func TestOneFailedListDoesNotEndReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("10.250.0.0/16")
		b.Pass()
		b.r.listErr = errors.New("interrupted")
		b.Pass()
		if d := b.document(); !d.Ready {
			t.Errorf("after one failure: %s: %s", d.Reason, d.Message)
		}
		time.Sleep(31 * time.Second)
		b.Pass()
		if d := b.document(); d.Ready || d.Reason != NotVerified || !strings.Contains(d.Message, "interrupted") {
			t.Errorf("after the lease: ready %v, %s: %s", d.Ready, d.Reason, d.Message)
		}
	})
}

func TestRepairIsCountedOnceAndNotForPolicyChanges(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Pass()
	b.src.report.Networks = networks("10.250.0.0/16", "10.251.0.0/16")
	b.Pass()
	if r := b.document().Repairs; r != (Repairs{}) {
		t.Errorf("a policy change counted as repair: %+v", r)
	}
	b.r.state.Rules = b.r.state.Rules[len(b.r.state.Rules)-2:]
	b.f.snapshot = firewall.Snapshot{}
	b.Pass()
	if r := b.document().Repairs; r != (Repairs{1, 1}) {
		t.Errorf("repairs %+v, want one each", r)
	}
}

// TestRunFollowsWakesAndResync counts passes in bubble time.
func TestRunFollowsWakesAndResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("10.250.0.0/16")
		var passes atomic.Int64
		b.Passed = func(time.Duration) { passes.Add(1) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		settled := passes.Load()
		for range 1000 {
			b.Wake()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := passes.Load() - settled; n < 1 || n > 2 {
			t.Errorf("a thousand wake-ups at once made %d passes, want one that was under way and one for the rest", n)
		}
		settled = passes.Load()
		time.Sleep(60 * time.Second)
		synctest.Wait()
		if n := passes.Load() - settled; n != 6 {
			t.Errorf("%d passes in six resyncs", n)
		}
		cancel()
		<-done
	})
}

// TestFightIsSlow: another program undoes every repair at once. The agent goes on, but not in a tight loop.
func TestFightIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench("10.250.0.0/16")
		passes := 0
		b.Passed = func(time.Duration) {
			passes++
			b.f.snapshot = firewall.Snapshot{}
			b.Wake()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b.Run(ctx)
		if passes < 100 || passes > 130 {
			t.Errorf("%d passes in a minute of fighting, want some sixty at first and then about one a second", passes)
		}
	})
}

// TestConnectionsOfTheOpeningAreSevered: those that routing sent to eth0 when the fence went up, and no others later.
func TestConnectionsOfTheOpeningAreSevered(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Pass()
	severed := func(when string, want ...connection) {
		t.Helper()
		if !slices.Equal(b.severed.ended, want) {
			t.Errorf("%s: severed %v, want %v", when, b.severed.ended, want)
		}
		b.severed.ended = nil
	}
	forgotten := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(b.severed.forgotten, want) {
			t.Errorf("%s: conntrack forgot %v, want %v", when, b.severed.forgotten, want)
		}
		b.severed.forgotten = nil
	}
	severed("at the start", connection{"10.250.0.7", 0}, connection{"10.250.0.7", 2}, connection{"10.250.0.7", 3})
	forgotten("at the start", "10.250.0.7")
	b.Pass()
	severed("without an opening")
	forgotten("without an opening")
	b.f.snapshot = firewall.Snapshot{}
	b.Pass()
	severed("after the firewall was gone, by sockets bound to eth0", connection{"10.250.0.7", 2})
	// What is forwarded is bound to nothing, and the routes held it.
	forgotten("after the firewall was gone")
}

// TestNotReadyWhileALayerIsMissing: between the look that finds a layer gone and the write that puts it back, the state says so.
func TestNotReadyWhileALayerIsMissing(t *testing.T) {
	b := newBench("10.250.0.0/16")
	b.Pass()
	b.f.snapshot = firewall.Snapshot{}
	var between Document
	b.f.applying = func() { between = b.document() }
	b.Pass()
	if between.Ready || between.Reason != LayerMissing || b.State().Started()[0].Err != nil {
		t.Errorf("in between: ready %v, %s: %s", between.Ready, between.Reason, between.Message)
	}
	if !b.document().Ready {
		t.Error("not ready after the repair")
	}
}
