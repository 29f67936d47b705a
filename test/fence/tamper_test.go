package fence

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// repairLimit is how long a repair may take: under nft events tell, under legacy the sizes of the tables do. What leaves a size as it was
// waits for the resync, of a second here, and the pass that it causes takes its time.
var repairLimit = map[string]time.Duration{"nft": 200 * time.Millisecond, "legacy": 1500 * time.Millisecond}

// resyncs is what the agent is told: so long under nft that no resync can pass for an event.
var resyncs = map[string]string{"nft": "10s", "legacy": "1s"}

// quietExec is what the slowest of a hundred runs of iptables-save takes on a machine that does nothing else. A busy machine
// is given more time by as much as it is slower.
const quietExec = 10 * time.Millisecond

// tries is how many repairs are measured: the quantiles need some under nft, while a resync takes its second.
var tries = map[string]int{"nft": 100, "legacy": 15}

// tampering is one run of acts against one agent, under traffic.
type tampering struct {
	*sidecar
	view  *view
	lanes *lanes
	took  []time.Duration
	// execs is how long the machine took for one run of iptables-save, between the tries.
	execs []time.Duration
	gaps  []string
}

// TestTamper: whatever is taken away comes back in time and is counted, what is foreign stays as it was, and meanwhile the
// other layer holds.
func TestTamper(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		plantForeign(r)
		tm := &tampering{view: newView(t, r, backend), lanes: openLanes(t, r)}
		expectLanesOpen(t, tm.lanes)
		tm.sidecar = startReady(t, r, backend, "--resync="+resyncs[backend])
		acts := actsFor(backend)
		if backend == "legacy" {
			acts = firewallActs(acts) // routing is the same under both
		}
		want := tm.view.full()
		for i := range tries[backend] {
			tm.try(t, acts[i%len(acts)], want)
		}
		tm.report(t, backend)
	})
}

// expectLanesOpen proves that the counters of both lanes count.
func expectLanesOpen(t *testing.T, l *lanes) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if free, bound := l.arrived(t); free > 0 && bound > 0 {
			return
		}
	}
	t.Fatal("without a fence the counters see nothing")
}

// try carries out one act and follows what comes of it.
func (tm *tampering) try(t *testing.T, a act, want string) {
	t.Helper()
	before, lines := tm.State(), tm.Changes()
	freeBefore, boundBefore := tm.lanes.arrived(t)
	begin := time.Now()
	if got := tamper(tm.view.r, a); got.Err != nil {
		t.Fatalf("%s: %v\n%s", a.name, got.Err, got.Stderr)
	}
	done := time.Now()
	plantAgain(tm.view.r, a, tm.view.backend)
	took, got := tm.view.untilRepaired(done, want, patience)
	if got != want {
		t.Fatalf("%s: not repaired within %v: want\n%s\ngot\n%s\nlog: %s", a.name, patience, want, got, tm.Tail())
	}
	after := tm.Await("ready again after "+a.name, func(d document) bool { return d.Ready && d.Repairs != before.Repairs })
	if n := tm.Changes() - lines; n == 0 {
		t.Errorf("%s: repairs went from %+v to %+v without a line in the log", a.name, before.Repairs, after.Repairs)
	}
	tm.took = append(tm.took, took)
	tm.settle()
	run := time.Now()
	tm.Pod.Run("iptables-" + tm.view.backend + "-save")
	tm.execs = append(tm.execs, time.Since(run))
	free, bound := tm.lanes.arrived(t)
	if free != freeBefore {
		t.Errorf("%s: %d packets of free sockets arrived", a.name, free-freeBefore)
	}
	switch {
	case bound == boundBefore:
	case !a.opens:
		t.Errorf("%s: %d packets of bound sockets arrived", a.name, bound-boundBefore)
	default:
		tm.gaps = append(tm.gaps, fmt.Sprintf("%d packets in %v", bound-boundBefore, took+done.Sub(begin)))
	}
}

// settle waits for a pass that has found nothing to do: the agent takes repairs in a row for a fight with another program,
// and slows down.
func (tm *tampering) settle() {
	tm.T.Helper()
	repaired := tm.State().VerifiedAt
	tm.Await("a pass found nothing to do", func(d document) bool { return d.VerifiedAt.After(repaired) })
}

// report asserts the quantile that counts and prints what was measured.
func (tm *tampering) report(t *testing.T, backend string) {
	t.Helper()
	p50, p99 := quantile(tm.took, 50), quantile(tm.took, 99)
	t.Logf("%d repairs: p50 %v, p99 %v, slowest %v", len(tm.took), p50, p99, slices.Max(tm.took))
	exec := quantile(tm.execs, 99)
	limit := max(repairLimit[backend], time.Duration(float64(repairLimit[backend])*float64(exec)/float64(quietExec)))
	t.Logf("the machine: p50 %v, p99 %v for one program", quantile(tm.execs, 50), exec)
	if p99 > limit {
		t.Errorf("p99 of the repairs is %v, want %v at most", p99, limit)
	}
	t.Logf("after a flush of the whole ruleset, bound sockets got out: %s", strings.Join(tm.gaps, ", "))
	t.Logf("%d packets were sent", tm.lanes.sent.Load())
}

func quantile(list []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)*percent+99)/100-1]
}

// TestRepairsThatFailAreTold: as long as somebody undoes every repair, readiness says so; the routes hold meanwhile; and
// once he stops, the fence is whole again without help.
func TestRepairsThatFailAreTold(t *testing.T) {
	eachBackend(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		plantRules(r, backend)
		s := startReady(t, r, backend)
		fight := r.Start("sh", "-c", "while :; do "+program("4", backend)+" -w 5 -F OUTPUT; done 2>/dev/null")
		s.Await("readiness goes", func(d document) bool { return !d.Ready })
		code, body := s.Get("/readyz")
		for deadline := time.Now().Add(patience); code == http.StatusOK && time.Now().Before(deadline); code, body = s.Get("/readyz") {
			time.Sleep(time.Millisecond)
		}
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "10.250.0.0/16") {
			t.Errorf("/readyz says %d %s", code, body)
		}
		if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4}); a.Err == nil {
			t.Errorf("during the fight: answered by %v", a)
		}
		fight.Kill()
		s.Await("ready again", func(d document) bool { return d.Ready })
	})
}

// TestLockedOut: while another program holds the xtables lock, the legacy backend can neither be read nor written. The
// state says so once its last read-back is too old, the process lives, and the routes hold.
func TestLockedOut(t *testing.T) {
	r := rig.New(t, rig.Options{})
	s := startReady(t, r, "legacy")
	r.ResetCounters()
	holder := r.Start("flock", r.XtablesLock(), "sh", "-c",
		"XTABLES_LOCKFILE="+r.XtablesLock()+".other iptables-legacy -F && sleep 4")
	d := s.Await("readiness goes", func(d document) bool { return !d.Ready })
	t.Logf("locked out: %s: %s", d.Reason, d.Message)
	if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4}); a.Err == nil {
		t.Errorf("locked out: answered by %v", a)
	}
	if _, err := holder.Wait(patience); err != nil {
		t.Fatal(err)
	}
	s.Await("ready again", func(d document) bool { return d.Ready && d.Repairs.Firewall > 0 })
	expectNoLeak(t, r, "locked out")
}
