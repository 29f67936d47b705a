package field

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// ruleCounts counts our jumps and rules in a backend, of both families.
func ruleCounts(r *rig.Rig, backend string) string {
	var jumps, rules int
	for _, family := range families {
		saved := r.Pod.Run(program(family, backend) + "-save")
		jumps += strings.Count(saved, "-j ROUTEFENCE")
		rules += strings.Count(saved, "-A ROUTEFENCE ")
	}
	return fmt.Sprintf("%d jumps, %d rules", jumps, rules)
}

// TestFR01: rules do not pile up, and a change of backend leaves one copy and no moment without one.
func TestFR01RulesDoNotPileUp(t *testing.T) {
	r := bench(t)
	loadLegacy(r)
	expectOpen(t, r)
	apply := func(backend string, times int) {
		for range times {
			if got := r.Exec(shipped.Binary, "init", bothNetworks, "--firewall="+backend); got.Exit != 0 {
				t.Fatalf("init exits with %d: %s", got.Exit, got.Stderr)
			}
		}
	}
	apply("nft", 1)
	want := ruleCounts(r, "nft")
	h := r.Hammer(rig.HammerRate / 4) // half of its senders are bound to eth0, where rules alone hold
	apply("nft", 49)
	if got := ruleCounts(r, "nft"); got != want || want == "0 jumps, 0 rules" {
		t.Errorf("after 50 times nft: %s, after one: %s", got, want)
	}
	apply("legacy", 5)
	if got := ruleCounts(r, "legacy"); got != want {
		t.Errorf("after 5 times legacy: %s, want %s", got, want)
	}
	if got := ruleCounts(r, "nft"); got != "0 jumps, 0 rules" {
		t.Errorf("under legacy there is left in nft: %s", got)
	}
	if totals := h.Stop(); totals.Seed.Total() != 0 || totals.Attempts == 0 {
		t.Errorf("meanwhile: %v", totals)
	}
}

// TestFR03: a peer holds the xtables lock. The report's 60 s are cut to 8, which is longer than one attempt waits: what
// comes after that attempt comes after each of them.
func TestFR03HeldLock(t *testing.T) {
	r := bench(t)
	file := newShootFile(t, r)
	file.write("10.250.0.0/16")
	s := start(t, r, "--shoot-file="+file.path, "--firewall=legacy", "--resync=1s")
	s.AwaitReady()
	holder := r.Start("flock", r.XtablesLock(), "sleep", "8")
	time.Sleep(100 * time.Millisecond) // until the holder has it
	begin := time.Now()
	file.write("10.250.0.0/16", "fd00:250::/48", "10.251.0.0/16")
	s.Await("the lock is named", func(d document) bool { return !d.Ready && strings.Contains(d.Message, "xtables lock") })
	if got := r.Pod.Run("ip route show table 9604"); !strings.Contains(got, "10.251.0.0/16") && !strings.Contains(got, "10.250.0.0/15") {
		t.Errorf("the routes wait for the lock, too:\n%s", got)
	}
	for most := 0; holder.Running(); time.Sleep(200 * time.Millisecond) {
		if n := len(children(t, s.Pid())); n > max(most, 4) {
			most = n
			t.Errorf("%d programs wait for the lock", n)
		}
		if code, body := s.Get("/healthz"); code != 200 || !s.Running() {
			t.Fatalf("/healthz %d %s, running %v", code, body, s.Running())
		}
	}
	released := time.Now()
	s.Await("the new network is in force", func(d document) bool { return d.Ready && strings.Contains(d.CIDRs(), "10.250.0.0/15") })
	t.Logf("asked for, held for %v, in force %v after the release", released.Sub(begin), time.Since(released))
	expectFenced(t, r, "after the lock")
}

// children lists the child processes of a process.
func children(t *testing.T, pid int) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range paths {
		text, _ := os.ReadFile(p) // a thread may be gone
		out = append(out, strings.Fields(string(text))...)
	}
	return out
}

// TestFR04: other versions of iptables refuse options, and print rules that this one would not.
func TestFR04OtherVersions(t *testing.T) {
	for name, c := range map[string]struct{ suffix, script string }{
		"glued -w is refused":      {"-restore", `for a; do case $a in -w?*|--wait=*) echo "invalid option $a" >&2; exit 2;; esac; done; exec REAL "$@"`},
		"-w is not known":          {"-restore", `for a; do case $a in -w*|--wait*) echo "unrecognized option '$a'" >&2; exit 2;; esac; done; exec REAL "$@"`},
		"rules of a newer version": {"-save", `REAL "$@" | sed '/^:FORWARD/a -A INPUT -m future --frobnicate "a \\"b\\" \\\\" ! --x -j FUTURE --with 1:2,3'`},
	} {
		t.Run(name, func(t *testing.T) {
			eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
				wrap := shims(t, r, everyProgram(backend, c.suffix, c.script))
				s := startWith(t, r, wrap, bothNetworks, "--firewall="+backend, "--resync=1s")
				s.AwaitReady()
				r.Pod.Run("iptables-" + backend + " -w 5 -F OUTPUT")
				s.Await("a repair", func(d document) bool { return d.Ready && d.Repairs.Firewall > 0 })
				expectFenced(t, r, name)
			})
		})
	}
}

// TestFR05: in an empty namespace there is no chain to list, and iptables-nft words that as an incompatible table.
func TestFR05EmptyNamespace(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		if got := r.Pod.Run("nft list ruleset"); got != "" {
			t.Fatalf("the namespace is not empty:\n%s", got)
		}
		got := r.Exec(shipped.Binary, "init", bothNetworks, "--firewall="+backend, "--timeout=15s")
		if got.Exit != 0 || strings.Contains(got.Stderr, "incompatible") {
			t.Errorf("init exits with %d: %s", got.Exit, got.Stderr)
		}
		expectFenced(t, r, "after the first start")
	})
}

// TestFR08: other programs flush what is not theirs. test/fence (TestTamper) measures the repairs; this one asks for what
// monitoring sees, and takes the backend that is not in use as well.
func TestFR08ForeignFlush(t *testing.T) {
	r := bench(t)
	loadLegacy(r)
	s := startReady(t, r, "nft")
	for _, act := range []string{
		"iptables-nft -F OUTPUT", "nft flush ruleset", "iptables-nft -D ROUTEFENCE 1", "iptables-nft -t mangle -F POSTROUTING",
	} {
		s.AwaitPasses(1) // repairs in a row are taken for a fight
		before, lines := s.State().Repairs.Firewall, s.Changes()
		r.ResetCounters()
		r.Pod.Run(act)
		if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4}); a.Err == nil {
			t.Errorf("right after %s: answered by %v", act, a)
		}
		s.Await("repaired after "+act, func(d document) bool { return d.Ready && d.Repairs.Firewall > before })
		if s.Changes() == lines {
			t.Errorf("%s: no line in the log", act)
		}
		expectNoLeak(t, r, act) // of a free socket: the routes hold
		expectFenced(t, r, act)
		_, metrics := s.Get("/metrics")
		want := fmt.Sprintf("routefence_repairs_total{layer=\"firewall\"} %d", s.State().Repairs.Firewall)
		if !strings.Contains(metrics, want) {
			t.Errorf("%s: no %s in the metrics", act, want)
		}
	}
	before := s.AwaitPasses(1).Repairs
	r.Pod.Run("iptables-legacy -w 5 -F")
	if after := s.AwaitPasses(2); after.Repairs != before || !after.Ready {
		t.Errorf("a flush of the other backend: repairs went from %+v to %+v, ready %v", before, after.Repairs, after.Ready)
	}
}

// TestFR08LegacyFlush: the kernel makes no event of what happens to legacy tables. The agent hears of it all the same, whether it is a flush
// of its own rules or a translation that comes.
func TestFR08LegacyFlush(t *testing.T) {
	r := bench(t)
	// No resync and no poll of passes within any patience here.
	s := startReady(t, r, "legacy", "--resync=5m", "--translation=off")
	for _, act := range []string{"iptables-legacy -w 5 -F", "ip6tables-legacy -w 5 -t mangle -F POSTROUTING"} {
		before, begin := s.State().Repairs.Firewall, time.Now()
		r.Pod.Run(act)
		s.Await("repaired after "+act, func(d document) bool { return d.Ready && d.Repairs.Firewall > before })
		t.Logf("%s: repaired after %v", act, time.Since(begin))
		expectFenced(t, r, act)
	}
	s.Stop()
	r.TunnelUp() // so that no blocked network makes the agent look every second
	s = startReady(t, r, "legacy", "--resync=5m")
	s.Await("tunneled", func(d document) bool { return d.Phase == "Tunneled" })
	begin := time.Now()
	netmap("legacy", false).rule(r, "-A")
	s.Await("translated", func(d document) bool { return len(d.Network("10.250.0.0/16").TranslatedTo) > 0 })
	t.Logf("a translation was found %v after it came", time.Since(begin))
}

// TestFR09: the tools of IPv6 are broken. IPv4 does not suffer, and whether the agent is ready depends on whether there is
// anything of IPv6 to fence.
func TestFR09BrokenIPv6(t *testing.T) {
	for _, exit := range []string{"3", "4"} {
		for networks, ready := range map[string]bool{"10.250.0.0/16": true, "10.250.0.0/16,fd00:250::/48": false} {
			t.Run(fmt.Sprintf("ip6tables exits %s, %s", exit, networks), func(t *testing.T) {
				r := bench(t)
				scripts := map[string]string{}
				for _, suffix := range []string{"", "-save", "-restore"} {
					scripts["ip6tables-nft"+suffix] = "echo 'address family not supported' >&2; exit " + exit
				}
				s := startWith(t, r, shims(t, r, scripts), "--node-networks="+networks, "--firewall=nft", "--resync=1s")
				d := s.Await("a verdict", func(d document) bool {
					return d.Ready == ready && d.Phase == "Blocked" && (ready || strings.Contains(d.Message, "ip6tables"))
				})
				t.Logf("%s: %s", d.Reason, d.Message)
				expectFenced(t, r, "IPv4 beside a broken IPv6", rig.Node4, rig.Mapped(rig.Node4))
			})
		}
	}
}

// TestFR10: single extensions are missing. The fence loses comfort and never its rules.
func TestFR10MissingExtensions(t *testing.T) {
	for words, said := range map[string]string{"-j REJECT": "REJECT", "-m comment": "comment", "-m conntrack": "conntrack"} {
		t.Run(strings.TrimSpace(words), func(t *testing.T) {
			eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
				wrap := shims(t, r, everyProgram(backend, "-restore", `rules=$(cat)
case "$rules" in *"`+words+`"*) echo "Extension is not supported, missing kernel module?" >&2; exit 2;; esac
printf '%s\n' "$rules" | REAL "$@"`))
				netmap(backend, false).rule(r, "-A") // what conntrack is for
				s := startWith(t, r, wrap, bothNetworks, "--firewall="+backend, "--resync=1s")
				if d := s.AwaitReady(); !strings.Contains(strings.Join(d.Firewall.Degraded, "; "), said) {
					t.Errorf("degraded: %q, want a word on %s", d.Firewall.Degraded, said)
				}
				expectFenced(t, r, "without "+words)
				if got := ruleCounts(r, backend); strings.Contains(got, " 0 rules") {
					t.Errorf("left with %s", got)
				}
			})
		})
	}
}

// TestFR11: another program's native chains stand in the very table. Where no rule of ours can be added, auto goes to the
// other backend, and nft says why; where one can, nothing is special.
func TestFR11IncompatibleTable(t *testing.T) {
	const taken = "table ip filter {\n\tchain OUTPUT {\n\t\ttype filter hook output priority 10; policy accept;\n\t}\n}\n"
	lower := strings.NewReplacer("OUTPUT", "output", "10", "0").Replace(taken)
	for _, c := range []struct{ name, table, backend, ready string }{
		{"auto", taken, "auto", "legacy"},
		{"nft", taken, "nft", ""},
		{"lower case", lower, "auto", "nft"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := bench(t)
			r.Pod.Feed(c.table, "nft -f -")
			s := start(t, r, bothNetworks, "--firewall="+c.backend, "--resync=1s")
			if c.ready == "" {
				d := s.Await("the reason", func(d document) bool {
					return !d.Ready && strings.Contains(d.Message, "native nft objects are in the way")
				})
				t.Logf("%s: %s", d.Reason, d.Message)
			} else {
				if d := s.AwaitReady(); d.Firewall.Backend != c.ready {
					t.Errorf("backend %s, want %s", d.Firewall.Backend, c.ready)
				}
				expectFenced(t, r, c.name)
			}
			if got := r.Pod.Run("nft list table ip filter"); !strings.Contains(got, strings.Split(c.table, "\n")[1]) {
				t.Errorf("the foreign chain is gone:\n%s", got)
			}
		})
	}
}
