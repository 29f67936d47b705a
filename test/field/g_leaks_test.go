package field

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// TestFR53: from the end of "init" on not one packet gets out. The report's 200 starts are shared by the backends; the restarts under
// fire are in test/fence (TestKilledAndRestarted).
func TestFR53LeakAtStart(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		expectOpen(t, r)
		for i := range 200 / len(backends) {
			if got := r.Exec(shipped.Binary, "init", bothNetworks, "--firewall="+backend); got.Exit != 0 {
				t.Fatalf("init exits with %d: %s", got.Exit, got.Stderr)
			}
			r.ResetCounters()
			all := ways("eth0", rig.Node4, rig.Node6)
			for p := range all {
				all[p].Timeout = 30 * time.Millisecond // what leaks shows in the counter
			}
			r.ProbeAll(all)
			expectNoLeak(t, r, fmt.Sprintf("start %d", i))
			clean(t, r)
		}
	})
}

// TestFR53SideBySide prints how long the door is open for whom nothing keeps from starting beside the agent; the documents say
// to use init. The routes are the first write.
func TestFR53SideBySide(t *testing.T) {
	r := bench(t)
	var gaps []time.Duration
	for range 8 {
		begin := time.Now()
		s := start(t, r, bothNetworks, "--firewall=nft")
		for last := time.Now(); ; {
			a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4, Timeout: brief})
			if a.From == rig.AnswerNet {
				last = time.Now()
			} else if a.String() == "EINVAL" {
				gaps = append(gaps, last.Sub(begin))
				break
			}
			if time.Since(begin) > patience {
				t.Fatalf("still open: %v\n%s", a, s.Tail())
			}
		}
		s.AwaitReady()
		s.Stop()
		clean(t, r)
	}
	slices.Sort(gaps)
	t.Logf("side by side, a free socket got out for: p50 %v, longest of %d: %v", gaps[len(gaps)/2], len(gaps), gaps[len(gaps)-1])
}

// TestFR53DenyComesFirst: the fence waits neither for an API server that does not answer nor for a file that is not there.
func TestFR53DenyComesFirst(t *testing.T) {
	r := bench(t)
	kubeconfig := filepath.Join(r.Dir, "kubeconfig")
	// 10.1.0.1 swallows everything: the seed network has no such address and says nothing.
	r.Net.Feed("table ip swallow {\nchain in {\ntype filter hook prerouting priority -400\nip daddr 10.1.0.1 drop\n}\n}\n", "nft -f -")
	must(t, os.WriteFile(kubeconfig, []byte(`apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://10.1.0.1:443"}}]
users: [{name: a, user: {token: a}}]
`), 0o600))
	begin := time.Now()
	s := start(t, r, bothNetworks, "--firewall=nft", "--shoot=cluster/shoot--dev--a", "--kubeconfig="+kubeconfig, "--shoot-file=/nonexistent")
	d := s.Await("the fence stands", func(d document) bool { return d.Phase == "Blocked" })
	t.Logf("fenced %v after the start; %s: %s", time.Since(begin), d.Reason, d.Message)
	expectFenced(t, r, "no source answers")
}

// TestFR56: each family is fenced for itself, 4-in-6 sockets with IPv4; an address that comes later changes nothing.
func TestFR56BothFamilies(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		r.Pod.Run("ip -6 addr flush dev eth0 scope global")
		file := newShootFile(t, r)
		file.write("10.250.0.0/16")
		s := start(t, r, "--shoot-file="+file.path, "--firewall="+backend, "--resync=1s")
		s.AwaitReady()
		r.ResetCounters()
		expectFenced(t, r, "IPv4 alone", rig.Node4, rig.Mapped(rig.Node4))
		r.Pod.Run("ip addr add " + rig.Pod6.String() + "/128 dev eth0 nodad")
		expectAnswer(t, r, "IPv6 is no node network yet", rig.Node6, rig.AnswerNet)
		file.write("10.250.0.0/16", "fd00:250::/48")
		s.Await("both families", func(d document) bool { return d.Ready && d.CIDRs() == "10.250.0.0/16 fd00:250::/48" })
		r.ResetCounters()
		expectFenced(t, r, "both families")
		code, body := s.Get("/readyz?verbose")
		for _, f := range []string{"routes-ipv4", "routes-ipv6", "firewall-ipv4", "firewall-ipv6"} {
			if code != 200 || !strings.Contains(body, "[+]"+f+" ok") {
				t.Errorf("/readyz?verbose %d has no [+]%s:\n%s", code, f, body)
			}
		}
		file.write("fd00:250::/48")
		s.Await("IPv6 alone", func(d document) bool { return d.Ready && d.CIDRs() == "fd00:250::/48" })
		expectFenced(t, r, "IPv6 alone", rig.Node6)
		expectAnswer(t, r, "IPv4 is no node network any more", rig.Node4, rig.AnswerNet)
	})
}

// TestFR58: what foreign routes would let out is counted. That it does not get out, and is named, is in test/fence
// (TestForeignPaths), forwarded packets included.
func TestFR58ShadowedAndCounted(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		s := startReady(t, r, backend)
		r.Pod.IP("route add 10.250.0.0/17 via 169.254.1.1 dev eth0", "route add 10.250.128.0/17 via 169.254.1.1 dev eth0",
			"rule add fwmark 1 pref 50 lookup 100", "route add default via 169.254.1.1 dev eth0 table 100")
		s.Await("all of it is named", func(d document) bool {
			c := d.Causes()
			return d.Ready && strings.Contains(c, "10.250.0.0/17") && strings.Contains(c, "10.250.128.0/17") && strings.Contains(c, "fwmark 0x1")
		})
		for range 3 {
			for _, mark := range []int{0, 1} {
				if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4, Mark: mark, Timeout: brief}); a.Err == nil {
					t.Errorf("with mark %d: answered by %v", mark, a)
				}
			}
		}
		s.AwaitPasses(1)
		_, metrics := s.Get("/metrics")
		if want := `routefence_rejected_packets_total{family="ipv4"} 3`; !strings.Contains(metrics, want) {
			t.Errorf("no %q in\n%s", want, metrics)
		}
		expectNoLeak(t, r, "shadowed")
	})
}

// TestFR60: however the agent ends, the fence stays. (Signals that ask it to leave are in test/fence, TestSignalsLeaveTheFence.)
func TestFR60AnyExit(t *testing.T) {
	r := bench(t)
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGSEGV} {
		s := startReady(t, r, "nft")
		want := snapshot(r)
		s.Signal(signal) // SIGKILL is what running out of memory ends in, the others are a crash of the Go runtime
		if code, err := s.Wait(patience); err != nil || code == 0 {
			t.Errorf("after %v: exit %d, %v", signal, code, err)
		}
		expectSame(t, "after "+signal.String(), want, snapshot(r))
		r.ResetCounters()
		expectFenced(t, r, "after "+signal.String())
	}
}

// TestFR60Cleanup: a cleanup that cannot take the lock says so, leaves the firewall closed, and is completed by the next one.
func TestFR60CleanupUnderLock(t *testing.T) {
	r := bench(t)
	loadLegacy(r)
	bare := snapshot(r)
	startReady(t, r, "legacy").Stop()
	holder := r.Start("flock", "-F", r.XtablesLock(), "sleep", "60")
	time.Sleep(100 * time.Millisecond) // until the holder has it
	begin := time.Now()
	got := r.Exec(shipped.Binary, "cleanup")
	t.Logf("cleanup under a held lock exits with %d after %v: %s", got.Exit, time.Since(begin), got.Stderr)
	if got.Exit != 1 || !strings.Contains(got.Stderr, "xtables lock") {
		t.Errorf("exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
	r.ResetCounters()
	expectFenced(t, r, "half cleaned up")
	holder.Kill()
	for range 2 {
		clean(t, r)
		expectSame(t, "after the cleanup", bare, snapshot(r))
	}
}
