package bench

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/firewall/xtables"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/sockets"
	"github.com/routefence/routefence/test/shipped"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// source is a source that says what the benchmark wants.
type source struct{ networks []netip.Prefix }

func (s *source) Report() shoot.Report {
	return shoot.Report{Name: "bench", Known: true, Networks: s.networks}
}
func (s *source) Run(ctx context.Context, _ func()) { <-ctx.Done() }

// writes counts what goes to the kernel.
type writes struct {
	*rtnl.Kernel
	n int
}

func (w *writes) Apply(c []routes.Change) error { w.n += len(c); return w.Kernel.Apply(c) }

// newAgent is an agent on the real kernel whose passes run in the calling thread.
func newAgent(b *testing.B, s *source) (*agent.Agent, *writes) {
	b.Helper()
	r, err := rtnl.New()
	if err != nil {
		b.Fatal(err)
	}
	conns, err := sockets.New()
	if err != nil {
		b.Fatal(err)
	}
	w := &writes{Kernel: r}
	k := agent.Kernel{Routes: w, Firewall: xtables.New("auto", nfnetlink.Conn{}, zap.NewNop()), Connections: conns}
	c := agent.Config{Fenced: policy.Patterns{"eth0"}, Tunnels: policy.Patterns{"tun0"}, Translation: agent.FollowTranslation,
		ReadyWhen: agent.WhenFenced, Resync: time.Hour, Passed: func(time.Duration) {}}
	a := agent.New(c, k, []agent.Source{s}, zap.NewNop())
	if s := a.Pass(); !s.Installed() {
		b.Fatalf("the fence does not stand: %s", s.At(time.Now()).Message)
	}
	return a, w
}

// BenchmarkIdlePass is a pass that finds everything in place: its CPU time, with that of programs it starts, and its writes.
func BenchmarkIdlePass(b *testing.B) {
	b.Run("1-network", func(b *testing.B) { idle(b, 1) })
	b.Run("10000-networks", func(b *testing.B) { idle(b, 10000) })
}

func idle(b *testing.B, n int) {
	inPod(b, func() {
		a, w := newAgent(b, &source{many(n, 4)})
		a.Pass()
		written, before, children := w.n, cpu(b, unix.RUSAGE_SELF), cpu(b, unix.RUSAGE_CHILDREN)
		for b.Loop() {
			a.Pass()
		}
		used, execs := cpu(b, unix.RUSAGE_SELF)-before, cpu(b, unix.RUSAGE_CHILDREN)-children
		b.ReportMetric(float64((used+execs).Microseconds())/1000/float64(b.N), "cpu-ms/pass")
		b.ReportMetric(float64(execs.Microseconds())/1000/float64(b.N), "cpu-ms-of-programs/pass")
		b.ReportMetric(float64(w.n-written)/float64(b.N), "writes/pass")
	})
}

func cpu(b *testing.B, who int) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOneChange replaces one of 10,000 networks, beside one netlink write.
func BenchmarkOneChange(b *testing.B) {
	inPod(b, func() {
		networks := many(10001, 4)
		s := &source{networks[:10000]}
		a, w := newAgent(b, s)
		spare := networks[10000]
		var ours, floors []time.Duration
		var written int
		for b.Loop() {
			changed := append([]netip.Prefix(nil), s.networks...)
			changed[5000], spare = spare, changed[5000]
			s.networks = changed
			written = w.n
			start := time.Now()
			state := a.Pass()
			ours = append(ours, time.Since(start))
			if !state.Installed() {
				b.Fatalf("the fence does not stand: %s", state.At(time.Now()).Message)
			}
			written = w.n - written
			floors = append(floors, oneWrite(b, w.Kernel, spare))
		}
		report(b, ours, floors)
		b.ReportMetric(float64(written), "route-writes")
	})
}

func oneWrite(b *testing.B, k *rtnl.Kernel, n netip.Prefix) time.Duration {
	b.Helper()
	r := routes.Route{Family: policy.IPv4, Table: 77, Dst: n, Type: routes.Blackhole, Metric: 1}
	start := time.Now()
	err := k.Apply([]routes.Change{{Op: routes.AddRoute, Route: r}})
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	if err := k.Apply([]routes.Change{{Op: routes.DelRoute, Route: r}}); err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkMemory is the resident memory of an agent that follows a file and has been idle for a while.
func BenchmarkMemory(b *testing.B) {
	list := filepath.Join(b.TempDir(), "networks")
	if err := os.WriteFile(list, []byte("10.250.0.0/16\nfd00:250::/48\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	inPod(b, func() {
		for b.Loop() {
			cmd := exec.Command(shipped.Binary, "run", "--shoot-file", list, "--listen", "127.0.0.1:9604")
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			time.Sleep(12 * time.Second) // past one resync
			status, err := os.ReadFile(filepath.Join("/proc", itoa(cmd.Process.Pid), "status"))
			if err != nil {
				b.Fatal(err)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			b.ReportMetric(resident(b, string(status)), "MiB-resident")
		}
	})
}
