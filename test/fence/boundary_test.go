package fence

import (
	"fmt"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// bench networks, as the writer takes them.
var nodeNetworks = []string{"10.250.0.0/16", "fd00:250::/48"}

// settleIn runs the agent until it is ready and stops it with SIGTERM, which leaves the fence.
func settleIn(t *testing.T, r *rig.Rig, backend string, networks ...string) {
	t.Helper()
	s := start(t, r, "--node-networks="+strings.Join(networks, ","), "--firewall="+backend)
	s.Await("the agent is ready", func(d document) bool { return d.Ready })
	if code := s.Stop(); code != 0 {
		t.Errorf("after SIGTERM: exit %d\n%s", code, s.Tail())
	}
}

// clean runs "routefence cleanup".
func clean(t *testing.T, r *rig.Rig) {
	t.Helper()
	if got := r.Exec(shipped.Binary, "cleanup"); got.Exit != 0 {
		t.Fatalf("cleanup exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
}

// refusals probes all ways from the pod and returns which are refused.
func refusals(r *rig.Rig) map[string]bool {
	ways := everyWay(r)
	for i := range ways {
		ways[i].Timeout = brief
	}
	refused := map[string]bool{}
	for i, a := range r.ProbeAll(ways) {
		refused[ways[i].String()] = a.Err != nil
	}
	return refused
}

// TestStartKilledAtEachWrite: whichever write of the first start is the last, what was refused stays refused, and the next
// start ends in the same kernel, byte for byte, as one that was never disturbed.
func TestStartKilledAtEachWrite(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		plantForeign(r)
		loadLegacy(r)
		bare := snapshot(r)
		settleIn(t, r, backend, nodeNetworks...)
		want := snapshot(r)
		clean(t, r)
		w := newWriter(t, r, backend)
		count := len(w.towards(nodeNetworks...))
		var before map[string]bool
		for k := range count + 1 {
			w.apply(w.towards(nodeNetworks...)[:k]...)
			now := refusals(r)
			for way, refused := range before {
				if refused && !now[way] {
					t.Errorf("after %d of %d writes: %s was refused one write earlier", k, count, way)
				}
			}
			before = now
			settleIn(t, r, backend, nodeNetworks...)
			expectSame(t, fmt.Sprintf("start after %d of %d writes", k, count), want, snapshot(r))
			clean(t, r)
		}
		for way, refused := range before {
			if !refused {
				t.Errorf("after all writes: %s is not refused", way)
			}
		}
		expectSame(t, "after all cleanups", bare, snapshot(r))
		t.Logf("%d boundaries", count+1)
	})
}

// TestChangeKilledAtEachWrite: on the way from one policy to another, an address of both stays fenced after every write,
// and the next start ends in the same kernel as an undisturbed change.
func TestChangeKilledAtEachWrite(t *testing.T) {
	from := append([]string{"10.60.0.0/16"}, nodeNetworks...)
	to := []string{"10.250.0.0/15", "fd00:250::/47", "10.61.0.0/16"}
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		expectHammerSeen(t, r)
		settleIn(t, r, backend, from...)
		settleIn(t, r, backend, to...)
		want := snapshot(r)
		settleIn(t, r, backend, from...)
		w := newWriter(t, r, backend)
		count := len(w.towards(to...))
		h := r.Hammer(hammerRate)
		for k := range count + 1 {
			w.apply(w.towards(to...)[:k]...)
			expectRefused(t, r, fmt.Sprintf("after %d of %d writes", k, count))
			settleIn(t, r, backend, to...)
			expectSame(t, fmt.Sprintf("start after %d of %d writes", k, count), want, snapshot(r))
			settleIn(t, r, backend, from...)
		}
		expectStopped(t, h)
		t.Logf("%d boundaries", count+1)
	})
}

// TestChangeToSetAtEachWrite: as above, over the threshold at which the firewall goes over to a set, and back. There
// are too many writes to start an agent after each.
func TestChangeToSetAtEachWrite(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		few, many := nodeNetworks, networksOf(3)
		settleIn(t, r, backend, few...)
		w := newWriter(t, r, backend)
		h := r.Hammer(hammerRate)
		for _, target := range [][]string{many, few} {
			steps := w.towards(target...)
			for _, s := range steps {
				w.apply(s)
				expectRefused(t, r, "after "+s.text[:min(len(s.text), 60)])
			}
			if rest := w.towards(target...); len(rest) != 0 {
				t.Errorf("after all writes there is more to do: %v", rest)
			}
			t.Logf("%d writes", len(steps))
		}
		expectStopped(t, h)
	})
}

// TestCleanupKilledAtEachWrite: a second cleanup completes what the first one left.
func TestCleanupKilledAtEachWrite(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		plantForeign(r)
		loadLegacy(r)
		r.Pod.Run("ip link set eth0 group 7")
		bare := snapshot(r)
		settleIn(t, r, backend, nodeNetworks...)
		w := newWriter(t, r, backend)
		count := len(w.away())
		for k := range count + 1 {
			w.apply(w.away()[:k]...)
			clean(t, r)
			expectSame(t, fmt.Sprintf("cleanup after %d of %d writes", k, count), bare, snapshot(r))
			settleIn(t, r, backend, nodeNetworks...)
		}
		t.Logf("%d boundaries", count+1)
	})
}

// expectRefused probes by free and bound sockets.
func expectRefused(t *testing.T, r *rig.Rig, when string) {
	t.Helper()
	for way, refused := range refusals(r) {
		if !refused {
			t.Errorf("%s: %s is answered", when, way)
		}
	}
}

// expectStopped ends a hammer that nothing may have passed.
func expectStopped(t *testing.T, h *rig.Hammer) {
	t.Helper()
	totals := h.Stop()
	if totals.Seed.Total() != 0 || totals.Attempts == 0 {
		t.Errorf("under the hammer: %v", totals)
	}
	t.Logf("hammer: %v", totals)
}

// snapshot is the bench's, without what "ip" says when namespaces of other benches go while it looks for a name.
func snapshot(r *rig.Rig) string {
	return strings.ReplaceAll(r.Snapshot(), "Error: Peer netns reference is invalid.\n", "")
}

// expectSame compares snapshots and shows where they differ.
func expectSame(t *testing.T, when, want, got string) {
	t.Helper()
	if want == got {
		return
	}
	t.Errorf("%s: the kernel differs:\n%s", when, difference(want, got))
}

// difference lists the lines that only one of two texts has.
func difference(want, got string) string {
	var b strings.Builder
	for _, side := range []struct{ sign, text, other string }{{"-", want, got}, {"+", got, want}} {
		has := map[string]int{}
		for line := range strings.Lines(side.other) {
			has[line]++
		}
		for line := range strings.Lines(side.text) {
			if has[line]--; has[line] < 0 {
				b.WriteString(side.sign + line)
			}
		}
	}
	if b.Len() == 0 {
		return "the same lines in another order:\n" + want + "\nbut\n" + got
	}
	return b.String()
}
